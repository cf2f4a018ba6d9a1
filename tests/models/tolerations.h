/* What timers.pml and deadlines.pml share: a pod with tolerations, each the first match of a taint of its own.
 *
 * ASSUMPTIONS, with those of requests.h
 *  5. The owner changes the first toleration only, to SHORT or LONG ticks, or to "indefinitely".
 * BOUNDS  N: tolerations of the pod, 1 or 2; LAG: ticks until the built-in controller sees a change (timers.pml);
 *         WATCH: 1: the leader sees a taint before the next tick, 0: at once; in a trace it lags, too.
 */
#include "requests.h"

#ifndef WATCH
#define WATCH 0
#endif
#define SHORT (LAG + 3 + WATCH)
#define LONG (LAG + 4 + WATCH)
#define MARK 14              /* MaxInt64 */
#define NEVER 15             /* "indefinitely" */

mtype = { taint_1, untaint_1, owner_short };
bool taint[N];
bool watched[N];                     /* the taints as the leader's watch has brought them, where it lags */
byte spec[N], note[N];
bool adopts, order;                  /* the leader takes over; people have ordered that nobody does */

#define some(p) (p(0) || p(N - 1))
#define LAGS (TRACED || WATCH)
#define unwatched(i) (watched[i] != taint[i])
#define known(i) (LAGS -> watched[i] : taint[i])
#define watched_in_time (!LAGS || !some(unwatched))
#define each_toleration(...) each(i, N, __VA_ARGS__)
#define noted(i) (spec[i] == MARK && note[i])
#define send(what, p) mine.kind = what; each_toleration(mine.which = mine.which | p(i) << i)

inline mark() { note[i] = spec[i]; spec[i] = MARK }
inline give_back() { spec[i] = note[i]; note[i] = 0 }
/* The API server decides a request. A model says what follows: written, toggle, owner_sets. */
inline decide(r) {
    if :: r.kind == refused -> disturbed()
       :: else -> each_toleration(if :: r.which >> i & 1 && r.kind == marked -> mark()
                                     :: r.which >> i & 1 && r.kind == given_back -> give_back() :: else fi);
                  written() fi;
    forget(r) }
inline learn() { skip }              /* the leader learns no more than what stands at the pod */
#define NODE_AND_OWNER \
    HIDDEN(0, leader_reads, LAGS && some(unwatched)) each_toleration(watched[i] = taint[i]) } \
    MOVE(0, (taint[0] -> untaint_0 : taint_0), true) toggle(0) } \
    MOVE(0, (taint[N - 1] -> untaint_1 : taint_1), N == 2) toggle(N - 1) } \
    MOVE(0, owner_short, spec[0] != SHORT) owner_sets(SHORT) } \
    MOVE(0, owner_long, spec[0] != LONG) owner_sets(LONG) } \
    MOVE(0, owner_ever, spec[0] != NEVER) owner_sets(NEVER) } \
    MOVE(0, owner_removes_annotation, note[0]) note[0] = 0; owner_sets(spec[0]) }
#define PEOPLE_AND_HAND_BACK \
    MOVE(0, (order -> order_ends : hand_back_orders), true) order = !order } \
    MOVE(0, hand_back_gives_back, order && some(noted)) \
        each_toleration(if :: noted(i) -> give_back() :: else fi); disturbed(); written() } \
    MOVE(0, hand_back_says_nothing_is_adopted, order && !some(noted)) skip }
