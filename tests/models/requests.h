/* What the models of countdowns share: one leader, its request, and requests that nobody waits for any more.
 *
 * Time is counted in ticks. One tick is longer than an API server that answers needs for a request.
 * ASSUMPTIONS
 *  1. At most one process leads, and sends nothing once it does not (elections.pml shows that). The next one may lead
 *     at once. A leader may die at any moment; its request stays under way.
 *  2. A request that was sent is decided or lost within LIFE ticks, also where nobody waits for the answer. At most
 *     LATES of those are under way at once.
 */
#include "trace.h"

#ifndef LIFE
#define LIFE 2
#endif
#ifndef LATES
#define LATES 1
#endif
typedef Request { mtype kind; bool tested; byte age; byte which };
Request mine, late[LATES];           /* the request whose answer the leader awaits; those that nobody waits for */
bool up;                             /* somebody leads */
byte i;

#define idle (mine.kind == 0)
#define room (late[0].kind == 0 || late[LATES - 1].kind == 0)
#define in_time(r, ticks) (r.kind == 0 || r.age < ticks)
#define all_in_time (in_time(mine, 1) && in_time(late[0], LIFE) && in_time(late[LATES - 1], LIFE))

inline send(what) { mine.kind = what; mine.tested = 1 }
inline forget(r) { r.kind = 0; r.tested = 0; r.age = 0; r.which = 0 }
inline give_up() {
    i = (late[0].kind -> LATES - 1 : 0); late[i].kind = mine.kind; late[i].tested = mine.tested; late[i].age = mine.age;
    late[i].which = mine.which; i = 0; forget(mine) }
inline requests_age() {
    mine.age = mine.age + !idle; each(i, LATES, late[i].age = late[i].age + (late[i].kind != 0)) }

/* How a leader ends, and gives up waiting. A model says what end and disturbed are. */
#define LEADER_ENDS \
    MOVE(0, leader_ends, up && idle) end() } \
    MOVE(0, (TRACED -> leader_ends : leader_ends_request_late), up && !idle && room) give_up(); end() } \
    MOVE(0, request_late, up && !idle && room) give_up(); disturbed() }
/* How a late request ends. A model says what outcome and decide are. */
#define LATE_REQUESTS active [LATES] proctype late_request() { \
    end_: do \
    MOVE(0, outcome(late[_pid], late_request_decided), late[_pid].kind) disturbed(); decide(late[_pid]) } \
    MOVE(0, late_request_lost, late[_pid].kind) forget(late[_pid]) } \
    od }
