/* Whose seconds count: this controller ends a pod by the seconds in the spec, or by those in the note of a mark.
 *
 * Leaders mark what counts, and give back all of it, or what no taint needs, at any moment: whatever entry.pml,
 * hand_back.pml and timers.pml would allow. The built-in controller writes nothing, so it is not here.
 * ASSUMPTIONS: those of tolerations.h
 * PROPERTIES
 *  P1 This controller ends no pod before the seconds that its owner set last have passed.
 *  P2 A toleration that is given back has the seconds that its owner set last.
 */
#include "tolerations.h"

#define COUNTS_ON (MISTAKE == 1) /* a taint that comes back counts from when it first came */

mtype = { evicts };
byte since[N];                       /* the ticks since each taint was set */
byte counted[N];                     /* the same as the leader counts it */
byte word[N];                        /* the seconds that the owner set last; nobody can read it */

#define to_mark(i) (known(i) && spec[i] < MARK)
#define needless(i) (noted(i) && !taint[i])
#define passed(i, s, seconds) (taint[i] && seconds < MARK && s >= seconds)
#define due(i) passed(i, counted[i], (noted(i) -> note[i] : spec[i]))
#define may_end(i) passed(i, since[i], word[i])
#define wrong(i) (spec[i] != MARK && spec[i] != word[i])
#define count(x) x = x + (taint[i] && x < LONG)

inline disturbed() { skip }
inline written() { refuse_all(); holds(!some(wrong)) /* P2 */ }
inline toggle(j) { taint[j] = !taint[j]; since[j] = 0; counted[j] = (COUNTS_ON -> counted[j] : 0) }
inline owner_sets(new) { spec[0] = new; word[0] = new; written() }
inline end() { up = 0 }

LATE_REQUESTS
active proctype all_of_it() {
    d_step { spec[0] = LONG; spec[N - 1] = (N == 2 -> SHORT : LONG); each_toleration(word[i] = spec[i]) }
    BEGIN
    NODE_AND_OWNER
    PEOPLE_AND_HAND_BACK
    PEOPLE_PAUSE_AND_RESUME(0)
    MOVE(0, leader_with_flag, !up) up = 1 }
    MOVE(0, leader_without_flag, !up) up = 1 }
    LEADER_ENDS_OR_IS_ANSWERED
    MOVE(0, sends_mark, up && idle && some(to_mark)) send(marked, to_mark) }
    MOVE(0, sends_give_back, up && idle && some(needless)) send(given_back, needless) }
    MOVE(0, sends_give_back, up && idle && some(noted)) send(given_back, noted) }
    MOVE(0, evicts, up && some(due)) holds(some(may_end)) /* P1 */ }
    MOVE(0, tick, all_in_time && watched_in_time) requests_age(); each_toleration(count(since[i]); count(counted[i])) }
    END
}
