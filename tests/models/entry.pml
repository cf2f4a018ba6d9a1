/* The entry in the state ConfigMap: whoever takes countdowns over has entered itself first. One pod, people, leaders.
 *
 * A leader that adopts enters itself, marks a toleration (seconds: MaxInt64) and notes its seconds, in one patch.
 * Giving back puts the noted seconds where the mark was. A leader without the flag gives all back, and removes the
 * entry when it has found nothing for WAIT ticks.
 * ASSUMPTIONS, with those of requests.h
 *  5. Nobody takes the right to mark away.
 *  6. The command hand-back gives back once no leader adopts any more, and removes the entry once nothing is marked,
 *     nor can be (hand_back.pml shows that).
 * PROPERTIES
 *  P1 While a pod has a mark with a note, the state ConfigMap says that somebody adopts.
 *  P2 A mark with a note whose taint is gone is given back within OWED ticks of a leader that is answered.
 *  P3 A toleration that is given back has the seconds that its owner set last.
 */
#include "requests.h"

#define WAIT (LIFE + 1)      /* 75 s: until then a request of a dead leader is decided */
#define HOUR (WAIT + 1)      /* how often a leader looks for notes */
#define OWED (HOUR + 3)
#define NEVER 15
#define UNTESTED (MISTAKE == 1) /* patches test neither the pod's version nor its tolerations */
#define MARKED_FIRST (MISTAKE == 2) /* marks before the state ConfigMap says that this process adopts */
#define ENTRY_FOUND (MISTAKE == 3) /* a leader that finds the entry does not write it again */
#define LEFT_EARLY (MISTAKE == 4) /* a leader without the flag removes the entry after its first look */
#define LOOKS_ONCE (MISTAKE == 5) /* a leader looks for notes only when it begins to lead */

mtype = { entered_it, left_it, sends_entry, looks, sends_leave };
mtype = { Seconds, Ever, MaxInt64 };
bool taint, note;                    /* a note says: Seconds */
mtype spec = Seconds, word = Seconds;   /* word: what the owner set last; nobody can read it */
bool entry, order;                   /* the state ConfigMap */
bool flag, fresh, heard, entered, saw_entry, knows, clean; byte age, look;   /* the leader */
byte owed;                           /* for how long an undisturbed leader has owed that it gives back */

#define noted (spec == MaxInt64 && note)
#define adopts (fresh && flag && !heard)
#define gives (fresh && (flag || saw_entry))
#define returns (gives && noted && (!adopts || !taint))
#define marks (mine.kind == marked || late[0].kind == marked || late[LATES - 1].kind == marked)
/* A leader does this before the next tick. While it adopts, it gives back one tick later: timers.pml says why. */
#define owes (idle && adopts && !entered || gives && look == 0 || idle && knows && returns && (owed || !adopts))

inline disturbed() { owed = 0 }
inline written() { if :: !UNTESTED -> refuse_all() :: else fi; holds(spec == MaxInt64 || spec == word) /* P3 */ }
inline owner_sets(seconds) { spec = seconds; word = seconds; owed = 0; written() }
inline give_back() { spec = Seconds; note = 0; written() }
inline unleave(r) { if :: r.kind == left_it -> forget(r) :: else fi }
inline enter(present) { entry = present; unleave(mine); unleave(late[0]); unleave(late[LATES - 1]) }
inline decide(r) {                   /* the API server decides a request */
    if :: r.kind == marked -> spec = MaxInt64; note = 1; written()
       :: r.kind == given_back -> give_back()
       :: r.kind == entered_it -> enter(1)
       :: r.kind == left_it -> entry = 0
       :: else fi;
    forget(r); holds(!noted || entry) /* P1 */ }
inline learn() {
    entered = entered || mine.kind == entered_it; saw_entry = saw_entry && mine.kind != left_it;
    knows = knows || mine.kind == marked; owed = (mine.kind == refused -> 0 : owed) }
inline end() {
    up = 0; flag = 0; fresh = 0; heard = 0; entered = 0; saw_entry = 0;
    knows = 0; clean = 0; age = 0; look = 0; owed = 0 }

LATE_REQUESTS
active proctype all_of_it() { BEGIN
    /* The node and the owner. */
    MOVE(0, (taint -> untaint_0 : taint_0), true) taint = !taint; owed = 0 }
    MOVE(0, owner_long, spec != Seconds) owner_sets(Seconds) }
    MOVE(0, owner_ever, spec != Ever) owner_sets(Ever) }
    MOVE(0, owner_removes_annotation, note) note = 0; owner_sets(spec) }
    /* The leader. */
    MOVE(0, leader_with_flag, !up) up = 1; flag = 1 }
    MOVE(0, leader_without_flag, !up) up = 1 }
    LEADER_ENDS_OR_IS_ANSWERED
    HIDDEN(0, leader_reads, up && (!fresh || heard != order || saw_entry != entry))
        fresh = 1; heard = order; saw_entry = entry; entered = entry && (entered || ENTRY_FOUND) }
    HIDDEN(0, sends_entry, idle && adopts && !entered) mine.kind = entered_it }
    MOVE(0, sends_mark, idle && adopts && (entered || MARKED_FIRST) && taint && spec == Seconds) mine.kind = marked }
    MOVE(0, sends_give_back, idle && (knows || TRACED) && returns) mine.kind = given_back }
    HIDDEN(0, looks, gives && look == 0)
        knows = noted; clean = (age == WAIT || LEFT_EARLY) && !noted;
        look = (LOOKS_ONCE -> NEVER : (age == 0 -> WAIT : HOUR)) }
    HIDDEN(0, sends_leave, gives && idle && !flag && clean && saw_entry) mine.kind = left_it }
    /* People and hand-back. */
    MOVE(0, (order -> order_ends : hand_back_orders), true) order = !order; owed = 0 }
    MOVE(0, hand_back_gives_back, order && noted && !adopts) give_back() }
    MOVE(0, hand_back_says_nothing_is_adopted, order && !noted && !adopts && !marks) enter(0) }
    PEOPLE_PAUSE_AND_RESUME(0)
    MOVE(0, tick, all_in_time && (!owes || TRACED))
        requests_age();
        age = age + (up && age < WAIT); look = (look == 0 || look == NEVER -> look : look - 1);
        owed = (gives && noted && !taint -> owed + 1 : 0); holds(owed <= OWED) /* P2 */ }
    END
}
