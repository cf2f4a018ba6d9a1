/* The command hand-back: one pod, people, the command, and leaders that take the countdown over, and give it back.
 *
 * A leader that adopts marks a toleration (seconds: MaxInt64) and notes its seconds, in one patch; giving back puts the
 * noted seconds where the mark was. Here it may do both at any moment, and need not: entry.pml says when it does.
 * People order "adopt nothing". Hand-back waits until a leader has confirmed that it read this, gives back, and waits.
 * ASSUMPTIONS, with those of requests.h
 *  5. Nobody takes the right to mark away. The order "adopt nothing" stays until people end it.
 * PROPERTIES
 *  P1 Once hand-back has said that nothing is adopted, no pod has, or gets, a mark with a note.
 */
#include "requests.h"

#define WAIT (LIFE + 1)      /* 75 s: until then a request of a dead leader is decided */
#define SAID_ONCE_CONFIRMED (MISTAKE == 1) /* hand-back believes the confirmation and does not wait */
#define NOT_CONFIRMED (MISTAKE == 2) /* hand-back waits for no confirmation, and counts from its order */
#define ANY_ORDER (MISTAKE == 3) /* a confirmation does not name the order that it confirms */
#define OLD_ORDERS (MISTAKE == 4) /* a new leader acts by the control state that it read before it led */

mtype = { confirmed_it, sends_confirmation, hand_back_waits };
mtype = { Nobody, Ordered, Counting, Said, Seconds, Ever, MaxInt64 };
bool taint, note;                    /* a note says: Seconds */
mtype spec = Seconds;
bool order, confirmed;               /* the state ConfigMap */
bool flag, fresh, heard, this_order; /* the leader: has read the state; it said "adopt nothing", and still says so */
mtype hand_back = Nobody; byte quiet;

#define may_say (quiet == WAIT || SAID_ONCE_CONFIRMED)
#define noted (spec == MaxInt64 && note)

inline disturbed() { skip }
inline learn() { skip }
inline sets(seconds) { spec = seconds; refuse_all() }
inline unconfirm(r) { if :: r.kind == confirmed_it -> forget(r) :: else fi }
inline decide(r) {                   /* the API server decides a request */
    if :: r.kind == marked -> note = 1; sets(MaxInt64)
       :: r.kind == given_back -> note = 0; sets(Seconds)
       :: r.kind == confirmed_it -> confirmed = 1
       :: else fi;
    forget(r); holds(hand_back != Said || !noted) /* P1 */ }
inline begin(with_flag) { quiet = 0; up = 1; flag = with_flag; fresh = OLD_ORDERS }
inline end() { up = 0; flag = 0; fresh = 0; heard = 0; this_order = 0 }

LATE_REQUESTS
active proctype all_of_it() { BEGIN
    /* The node and the owner. */
    MOVE(0, (taint -> untaint_0 : taint_0), true) taint = !taint }
    MOVE(0, owner_long, spec != Seconds) sets(Seconds) }
    MOVE(0, owner_ever, spec != Ever) sets(Ever) }
    MOVE(0, owner_removes_annotation, note) note = 0; refuse_all() }
    /* The leader. */
    MOVE(0, leader_with_flag, !up) begin(1) }
    MOVE(0, leader_without_flag, !up) begin(0) }
    LEADER_ENDS_OR_IS_ANSWERED
    HIDDEN(0, leader_reads, up && (!fresh || heard != order || heard && !this_order))
        fresh = 1; heard = order; this_order = order }
    MOVE(0, sends_mark, idle && fresh && flag && !heard && taint && spec == Seconds) mine.kind = marked }
    MOVE(0, sends_give_back, idle && fresh && noted) mine.kind = given_back }
    HIDDEN(0, sends_confirmation, idle && heard && this_order && (!confirmed || TRACED)) mine.kind = confirmed_it }
    /* People and hand-back. */
    MOVE(0, hand_back_orders, hand_back == Nobody) hand_back = Ordered; order = 1; confirmed = 0 }
    HIDDEN(0, hand_back_waits, hand_back == Ordered && (confirmed || !up || NOT_CONFIRMED))
        hand_back = Counting; quiet = 0 }
    MOVE(0, hand_back_gives_back, hand_back == Counting && noted) note = 0; sets(Seconds) }
    MOVE(0, hand_back_says_nothing_is_adopted, hand_back == Counting && !noted && may_say)
        hand_back = Said }
    MOVE(0, order_ends, order) hand_back = Nobody; order = 0; confirmed = 0; quiet = 0; this_order = ANY_ORDER;
        if :: !ANY_ORDER -> unconfirm(mine); unconfirm(late[0]); unconfirm(late[LATES - 1]) :: else fi }
    PEOPLE_PAUSE_AND_RESUME(0)
    MOVE(0, tick, all_in_time) requests_age(); quiet = quiet + (hand_back == Counting && quiet < WAIT) }
    END
}
