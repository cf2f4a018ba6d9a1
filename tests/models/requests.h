/* What the models of countdowns share: one leader, its request, and requests that nobody waits for any more.
 *
 * ASSUMPTIONS
 *  1. At most one process leads, and sends nothing once it does not (elections.pml shows that). The next one may lead
 *     at once. A leader may die at any moment; its request stays under way.
 *  2. A request that was sent is decided or lost within LIFE ticks, also where nobody waits for the answer. At most
 *     LATES (1, 2) of those are under way at once. One tick is longer than an API server that answers needs.
 *  3. The owner never writes MaxInt64 where a note stands.
 *  4. Pauses hold this controller's evictions, and nothing else.
 */
#include "trace.h"

mtype = { taint_0, untaint_0, owner_long, owner_ever, owner_removes_annotation, leader_with_flag, leader_without_flag,
          leader_ends, leader_ends_request_late, request_late, late_request_decided, late_request_lost, outdated,
          answered, marked, given_back, refused, leader_reads, sends_mark, sends_give_back, hand_back_orders,
          hand_back_gives_back, hand_back_says_nothing_is_adopted, order_ends, person_pauses, person_resumes, tick };
typedef Request { mtype kind; byte age; byte which };   /* its kind is the move that it comes to */
Request mine, late[LATES];           /* the request whose answer the leader awaits; those that nobody waits for */
bool up;                             /* somebody leads */
bool paused;                         /* only with a mistake */
byte i;

#define idle (mine.kind == 0)
#define room (late[0].kind == 0 || late[LATES - 1].kind == 0)
#define in_time(r, ticks) (r.kind == 0 || r.age < ticks)
#define all_in_time (in_time(mine, 1) && in_time(late[0], LIFE) && in_time(late[LATES - 1], LIFE))
#define on_pod(r) (r.kind == marked || r.kind == given_back)

inline forget(r) { r.kind = 0; r.age = 0; r.which = 0 }
inline refuse(r) { if :: on_pod(r) -> r.kind = refused; r.which = 0 :: else fi }
inline refuse_all() { refuse(mine); refuse(late[0]); refuse(late[LATES - 1]) }   /* they test the pod's version */
inline give_up() {
    i = (late[0].kind -> LATES - 1 : 0); late[i].kind = mine.kind; late[i].age = mine.age; late[i].which = mine.which;
    i = 0; forget(mine) }
inline requests_age() { mine.age = mine.age + !idle; each(i, LATES, late[i].age = late[i].age + (late[i].kind != 0)) }

/* How a leader ends, gives up waiting, or gets its answer. A model says what end, disturbed, learn and decide are. */
#define LEADER_ENDS_OR_IS_ANSWERED \
    MOVE(0, leader_ends, up && idle) end() } \
    MOVE(0, (TRACED -> leader_ends : leader_ends_request_late), up && !idle && room) give_up(); end() } \
    HIDDEN(0, request_late, up && !idle && room) give_up(); disturbed() } \
    HIDDEN(0, outdated, TRACED) refuse(mine) } \
    MOVE(0, (TRACED -> mine.kind : answered), !idle) learn(); decide(mine) }
/* How a late request ends. */
#define LATE_REQUESTS active [LATES] proctype late_request() { \
    end_: do \
    MOVE(0, (TRACED -> late[_pid].kind : late_request_decided), late[_pid].kind) disturbed(); decide(late[_pid]) } \
    HIDDEN(0, late_request_lost, late[_pid].kind) forget(late[_pid]) } \
    od }
#define PEOPLE_PAUSE_AND_RESUME(with_mistake) \
    MOVE(0, person_pauses, true) paused = with_mistake } \
    MOVE(0, person_resumes, true) paused = 0 }
