/* Countdowns taken over, and given back: one pod, leaders that adopt or do not, people, and the command hand-back.
 *
 * A leader that adopts marks a toleration (seconds: MaxInt64) and notes its seconds, in one patch. Giving back puts the noted
 * seconds where the mark was. Whoever adopts has an entry in the state ConfigMap first; so has the order "adopt nothing".
 * ASSUMPTIONS, with those of requests.h
 *  3. The owner never writes MaxInt64 where a note stands.
 *  4. Nobody takes the right to mark away. The order "adopt nothing" stays until people end it.
 *  5. Pauses hold evictions, and change nothing here.
 * PROPERTIES
 *  P1 Once hand-back has said that nothing is adopted, no pod has, or gets, a mark with a note.
 *  P2 While a pod has a mark with a note, the state ConfigMap says that somebody adopts.
 *  P3 A mark with a note whose taint is gone is given back within OWED ticks of a leader that is answered.
 *  P4 A toleration that is given back has the seconds that its owner set last.
 */
#define hidden(move) (move == request_late || move == late_request_lost || move == leader_reads || move == looks || \
                      move == sends_entry || move == sends_leave || move == sends_confirmation || \
                      move == nothing_done || move == outdated || move == hand_back_waits)
#include "requests.h"

#define WAIT (LIFE + 1)      /* 75 s: until then a request of a dead leader is decided */
#define HOUR (WAIT + 1)      /* how often a leader looks for notes */
#define OWED (HOUR + 3)
#define NEVER 15
#define SAID_ONCE_CONFIRMED (MISTAKE == 1) /* hand-back believes the confirmation and does not wait */
#define NOT_CONFIRMED (MISTAKE == 2) /* hand-back waits for no confirmation, and counts from its order */
#define ANY_ORDER (MISTAKE == 3) /* a confirmation does not name the order that it confirms */
#define OLD_ORDERS (MISTAKE == 4) /* a new leader acts by the control state that it read before it led */
#define UNTESTED (MISTAKE == 5) /* patches test neither the pod's version nor its tolerations */
#define MARKED_FIRST (MISTAKE == 6) /* marks before the state ConfigMap says that this process adopts */
#define ENTRY_FOUND (MISTAKE == 7) /* a leader that finds the entry does not write it again */
#define LEFT_EARLY (MISTAKE == 8) /* a leader without the flag removes the entry after its first look */
#define LOOKS_ONCE (MISTAKE == 9) /* a leader looks for notes only when it begins to lead */

mtype = { taint_0, untaint_0, owner_long, owner_ever, owner_removes_annotation, leader_with_flag, leader_without_flag,
          leader_ends, leader_ends_request_late, request_late, late_request_decided, late_request_lost, outdated,
          answered, marked, given_back, entered_it, left_it, confirmed_it, refused, nothing_done, leader_reads,
          sends_entry, sends_mark, sends_give_back, looks, sends_leave, sends_confirmation, hand_back_orders,
          hand_back_waits, hand_back_gives_back, hand_back_says_nothing_is_adopted, order_ends,
          person_pauses, person_resumes, tick };
mtype = { Mark, Give, Enter, Leave, Confirm, Nobody, Ordered, Counting, Said, Seconds, Ever, MaxInt64 };
bool taint, note;                    /* a note says: Seconds */
mtype spec = Seconds, word = Seconds;   /* word: what the owner set last; nobody can read it */
bool entry, order, confirmed;        /* the state ConfigMap */
bool flag, fresh, heard, this_order, entered, saw_entry, knows, clean; byte age, look;   /* the leader */
mtype hand_back = Nobody; byte quiet;
byte owed;                           /* for how long an undisturbed leader has owed that it gives back */

#define noted (spec == MaxInt64 && note)
#define adopts (up && flag && fresh && !heard && (entered || MARKED_FIRST))
#define gives (up && fresh && (flag || saw_entry))
#define returns (gives && noted && (!flag || heard || !taint))
#define may_leave (age == WAIT || LEFT_EARLY)
/* A leader does this before the next tick. While it adopts, it gives back one tick later: timers.pml says why. */
#define owes (!TRACED && (idle && up && fresh && flag && !heard && !entered || gives && look == 0 || \
                          idle && knows && returns && (owed || heard || !flag)))
/* What a request comes to: told apart in traces. */
#define on_pod(r) (r.kind == Mark || r.kind == Give)
#define outcome(r, what) (!TRACED -> what : (r.kind == Enter -> entered_it : (!r.tested -> (on_pod(r) -> refused : \
    nothing_done) : (r.kind == Mark -> marked : (r.kind == Give -> given_back : (r.kind == Leave -> left_it : confirmed_it))))))

inline lapses(r, a, b) { r.tested = r.tested && r.kind != a && r.kind != b }
inline overtaken(a, b) { lapses(mine, a, b); lapses(late[0], a, b); lapses(late[LATES - 1], a, b) }
inline disturbed() { owed = 0 }
inline written() { if :: !UNTESTED -> overtaken(Mark, Give) :: else fi; holds(spec == MaxInt64 || spec == word) /* P4 */ }
inline owner_sets(seconds) { spec = seconds; word = seconds; owed = 0; written() }
inline decide(r) {                   /* the API server decides a request */
    if :: r.kind == Mark && r.tested -> spec = MaxInt64; note = 1; written()
       :: r.kind == Give && r.tested -> spec = Seconds; note = 0; written()
       :: r.kind == Enter -> entry = 1; overtaken(Leave, Leave)
       :: r.kind == Leave && r.tested -> entry = 0
       :: r.kind == Confirm && r.tested -> confirmed = 1
       :: else fi;
    forget(r); holds(hand_back != Said || !noted) /* P1 */; holds(!noted || entry) /* P2 */ }
inline begin(with_flag) { quiet = 0; up = 1; flag = with_flag; fresh = OLD_ORDERS }
inline end() { up = 0; flag = 0; fresh = 0; heard = 0; this_order = 0; entered = 0; saw_entry = 0; knows = 0; clean = 0;
    age = 0; look = 0; owed = 0 }

LATE_REQUESTS
active proctype all_of_it() {
    BEGIN
    do
    END
    /* The node and the owner. */
    MOVE(0, taint_0, !taint) taint = 1; owed = 0 }
    MOVE(0, untaint_0, taint) taint = 0; owed = 0 }
    MOVE(0, owner_long, spec != Seconds) owner_sets(Seconds) }
    MOVE(0, owner_ever, spec != Ever) owner_sets(Ever) }
    MOVE(0, owner_removes_annotation, note) note = 0; word = (spec == MaxInt64 -> MaxInt64 : word); owed = 0; written() }
    /* Leaders begin and die; requests are decided, late or lost. */
    MOVE(0, leader_with_flag, !up) begin(1) }
    MOVE(0, leader_without_flag, !up) begin(0) }
    LEADER_ENDS
    MOVE(0, outcome(mine, answered), !idle)
        if :: mine.kind == Enter -> entered = 1
           :: mine.kind == Mark && mine.tested -> knows = 1
           :: mine.kind == Leave && mine.tested -> saw_entry = 0
           :: !mine.tested -> owed = 0
           :: else fi;
        decide(mine) }
    MOVE(0, outdated, TRACED && on_pod(mine) && mine.tested) mine.tested = 0 }
    /* The leader. */
    MOVE(0, leader_reads, up && (!fresh || heard != order || heard && !this_order || saw_entry != entry))
        fresh = 1; heard = order; this_order = order; saw_entry = entry; entered = entry && (entered || ENTRY_FOUND) }
    MOVE(0, sends_entry, up && idle && fresh && flag && !heard && !entered) send(Enter) }
    MOVE(0, sends_mark, adopts && idle && taint && spec == Seconds) send(Mark) }
    MOVE(0, sends_give_back, idle && (knows || TRACED) && returns) send(Give) }
    MOVE(0, looks, gives && look == 0)
        knows = noted; clean = may_leave && !knows; look = (LOOKS_ONCE -> NEVER : (age == 0 -> WAIT : HOUR)) }
    MOVE(0, sends_leave, gives && idle && !flag && clean && may_leave && saw_entry) send(Leave) }
    MOVE(0, sends_confirmation, up && idle && fresh && heard && (!confirmed || TRACED))
        send(Confirm); mine.tested = this_order }
    /* People and hand-back. */
    MOVE(0, hand_back_orders, hand_back == Nobody) hand_back = Ordered; order = 1; confirmed = 0; owed = 0 }
    MOVE(0, hand_back_waits, hand_back == Ordered && (confirmed || !up || NOT_CONFIRMED)) hand_back = Counting; quiet = 0 }
    MOVE(0, hand_back_gives_back, hand_back == Counting && noted) spec = Seconds; note = 0; written() }
    MOVE(0, hand_back_says_nothing_is_adopted, hand_back == Counting && (quiet == WAIT || SAID_ONCE_CONFIRMED) && !noted)
        hand_back = Said; entry = 0; overtaken(Leave, Leave) }
    MOVE(0, order_ends, order) hand_back = Nobody; order = 0; confirmed = 0; quiet = 0; this_order = ANY_ORDER; owed = 0;
        if :: !ANY_ORDER -> overtaken(Confirm, Confirm) :: else fi }
    MOVE(0, person_pauses, true) skip }
    MOVE(0, person_resumes, true) skip }
    MOVE(0, tick, all_in_time && !owes)
        requests_age();
        age = (up && age < WAIT -> age + 1 : age); look = (look == 0 || look == NEVER -> look : look - 1);
        quiet = (hand_back == Counting && quiet < WAIT -> quiet + 1 : quiet);
        owed = (gives && noted && !taint -> owed + 1 : 0); holds(owed <= OWED) /* P3 */ }
    od
}
