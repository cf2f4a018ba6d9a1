/* Countdowns taken over from the built-in controller, whose timers cannot be moved: one pod, people, and leaders.
 *
 * The built-in controller arms one timer, at the least finite seconds of the taints that are tolerated. A leader marks
 * tolerations (seconds: MaxInt64) and notes their seconds, in one patch, before that timer ends; then it counts alone.
 * Of hand_back.pml there is all that may happen to the pod, and more: while a leader does not adopt, or people have
 * ordered "adopt nothing", seconds are given back at any moment.
 * ASSUMPTIONS, with those of requests.h
 *  3. The built-in controller sees a change within LAG ticks, and not necessarily every change. Once armed, its timer
 *     does not move; it is cancelled where no toleration that matches a taint has finite seconds.
 *  4. The owner's seconds are more than BEFORE ticks. The owner never writes MaxInt64 where a note stands.
 *  5. Pauses hold this controller's evictions, and nothing else.
 * PROPERTIES
 *  P1 This controller ends no pod before the seconds that its owner set last have passed.
 *  P2 The built-in controller ends no pod where a leader that adopts was there, and was answered, for ENOUGH ticks since
 *     somebody else last made seconds count (a taint that is not tolerated for ever, the owner's seconds, hand-back).
 *  P3 A toleration that is given back has the seconds that its owner set last.
 */
#define hidden(move) (move == request_late || move == late_request_lost || move == outdated || move == built_in_sees || \
                      move == leader_reads)
#include "requests.h"

#ifndef N
#define N 1                  /* tolerations of the pod, each the first match of a taint of its own */
#endif
#ifndef OWNER
#define OWNER 1              /* 0: the owner changes nothing */
#endif
#ifndef HAND_BACK
#define HAND_BACK 1          /* 0: all leaders adopt, and nobody orders anything */
#endif
#ifndef LAG
#define LAG 1
#endif
#define BEFORE (LAG + 2)     /* a countdown is taken over this long before the built-in's timer */
#define ENOUGH (BEFORE + 1)  /* one request that is already under way, one mark, and its being seen */
#define SHORT (BEFORE + 1)   /* the owner's seconds are SHORT, or LONG, or */
#define LONG (BEFORE + 2)
#define EVER 15              /* none: "indefinitely" */
#define MARK 14              /* MaxInt64 */
#define NEVER 15
#define BACK_AT_ONCE (MISTAKE == 1) /* gives back before the built-in must have seen the mark */
#define DUE_ONLY (MISTAKE == 2) /* only the toleration with the nearest deadline is marked */
#define PAUSED_TOO (MISTAKE == 3) /* nothing is taken over while evictions are paused */

mtype = { taint_0, untaint_0, taint_1, untaint_1, owner_short, owner_long, owner_ever, owner_removes_annotation,
          built_in_sees, built_in_restarts, built_in_evicts, leader_with_flag, leader_without_flag, leader_ends,
          leader_ends_request_late, request_late, late_request_decided, late_request_lost, outdated, answered, marked,
          given_back, refused, leader_reads, sends_mark, sends_give_back, evicts, hand_back_orders, hand_back_gives_back,
          order_ends, person_pauses, person_resumes, tick };
mtype = { Mark, Give };
bool taint[N]; byte since[N];        /* the taints of the node, and the ticks since each was set */
byte spec[N], note[N], word[N];      /* word: the seconds that the owner set last; nobody can read it */
byte timer = NEVER, stale;           /* the built-in's timer, and for how long it has missed a change */
bool adopts, order, gone;            /* the leader takes over; people have ordered that nobody does */
bool paused;                         /* only with the mistake */
byte earliest = NEVER, without = LAG + 1;   /* for the leader: the earliest end of that timer; ticks without any */
byte able;                           /* for how long an undisturbed leader has been able to take over */
byte least;

#define some(p) (p(0) || p(N - 1))
#define each_toleration(...) each(i, N, __VA_ARGS__)
#define about(r) (r.which >> i & 1)
#define tainted(i) taint[i]
#define counts(i) (taint[i] && spec[i] < MARK)
#define noted(i) (spec[i] == MARK && note[i] != 0)
#define returns(i) (noted(i) && (!adopts || !taint[i] && (without > LAG || BACK_AT_ONCE)))
#define takes_over (up && adopts && !paused && some(counts))
#define ends(i, s) (taint[i] && s < MARK && since[i] >= s)
#define due(i) ends(i, (noted(i) -> note[i] : spec[i]))
#define passed(i) ends(i, word[i])
#define wrong(i) (spec[i] != MARK && spec[i] != word[i])
/* A leader that adopts does this before the next tick. */
#define owes (!TRACED && idle && up && adopts && (takes_over && earliest <= BEFORE || some(returns)))
/* What a request comes to: told apart in traces. */
#define outcome(r, what) (!TRACED -> what : (!r.tested -> refused : (r.kind == Mark -> marked : given_back)))

inline find_least() { least = NEVER; each_toleration(least = (counts(i) && spec[i] < least -> spec[i] : least)) }
inline changed() { stale = (stale -> stale : 1); find_least(); without = (least == NEVER -> without : 0);
    earliest = (least < earliest -> least : earliest) }
inline written() { changed(); mine.tested = 0; late[0].tested = 0; late[LATES - 1].tested = 0 }
inline toggle(j) { able = (spec[j] < MARK && !taint[j] -> 0 : able); taint[j] = !taint[j]; since[j] = 0; changed() }
inline owner_sets(seconds) { spec[0] = seconds; word[0] = seconds; able = 0; written() }
inline disturbed() { able = 0 }
inline end() { up = 0; adopts = 0; disturbed() }
inline mark() { note[i] = spec[i]; spec[i] = MARK }
inline give() { spec[i] = note[i]; note[i] = 0 }
inline decide(r) {                   /* the API server decides a request */
    if :: r.tested -> each_toleration(if :: about(r) && r.kind == Mark -> mark() :: about(r) && r.kind == Give -> give()
                                         :: else fi);
                      written(); holds(!some(wrong)) /* P3 */
       :: else -> able = 0 fi;
    forget(r) }

LATE_REQUESTS
active proctype all_of_it() {
    BEGIN
    d_step { each_toleration(spec[i] = (i == 0 -> LONG : SHORT); word[i] = spec[i]) }
    do
    END
    /* The node and the owner. */
    MOVE(0, taint_0, !taint[0]) toggle(0) }
    MOVE(0, untaint_0, taint[0]) toggle(0) }
    MOVE(0, taint_1, N == 2 && !taint[N - 1]) toggle(N - 1) }
    MOVE(0, untaint_1, N == 2 && taint[N - 1]) toggle(N - 1) }
    MOVE(0, owner_short, OWNER && spec[0] != SHORT) owner_sets(SHORT) }
    MOVE(0, owner_long, OWNER && spec[0] != LONG) owner_sets(LONG) }
    MOVE(0, owner_ever, OWNER && spec[0] != EVER) owner_sets(EVER) }
    MOVE(0, owner_removes_annotation, OWNER && note[0])
        note[0] = 0; word[0] = (spec[0] == MARK -> MARK : word[0]); able = 0; written() }
    /* The built-in controller. */
    MOVE(0, built_in_sees, stale) stale = 0; find_least(); timer = (least == NEVER || timer == NEVER -> least : timer) }
    MOVE(0, built_in_restarts, timer != NEVER || TRACED) timer = NEVER; stale = (stale -> stale : 1) }
    MOVE(0, built_in_evicts, timer == 0) holds(able < ENOUGH) /* P2 */; gone = 1 }
    /* Leaders begin and die; requests are decided, late or lost. */
    MOVE(0, leader_with_flag, !up) up = 1; adopts = !order }
    MOVE(0, leader_without_flag, HAND_BACK && !up) up = 1 }
    LEADER_ENDS
    MOVE(0, outcome(mine, answered), !idle) decide(mine) }
    MOVE(0, outdated, TRACED && mine.tested) mine.tested = 0 }
    /* The leader. */
    MOVE(0, leader_reads, up && adopts == order) adopts = !order; able = 0 }
    MOVE(0, sends_mark, idle && takes_over) send(Mark); find_least();
        each_toleration(if :: counts(i) && !(DUE_ONLY && spec[i] != least) -> mine.which = mine.which | 1 << i;
                                  least = (DUE_ONLY -> NEVER : least)
                           :: else fi) }
    MOVE(0, sends_give_back, up && idle && some(returns)) send(Give);
        each_toleration(mine.which = mine.which | returns(i) << i) }
    MOVE(0, evicts, up && some(due)) holds(some(passed)) /* P1 */; gone = 1 }
    :: gone -> break
    /* People. */
    MOVE(0, hand_back_orders, HAND_BACK && !order) order = 1 }
    MOVE(0, hand_back_gives_back, order && some(noted))
        each_toleration(if :: noted(i) -> give() :: else fi); able = 0; written(); holds(!some(wrong)) /* P3 */ }
    MOVE(0, order_ends, order) order = 0 }
    MOVE(0, person_pauses, true) paused = PAUSED_TOO }
    MOVE(0, person_resumes, true) paused = 0 }
    MOVE(0, tick, timer != 0 && stale <= LAG && all_in_time && !owes)
        each_toleration(since[i] = (taint[i] && since[i] < LONG -> since[i] + 1 : since[i]));
        timer = (timer == NEVER -> NEVER : timer - 1); stale = (stale -> stale + 1 : 0);
        requests_age(); find_least();
        without = (least == NEVER && without <= LAG -> without + 1 : without);
        earliest = (least == NEVER && without > LAG -> NEVER : earliest);
        earliest = (earliest == NEVER || earliest == 0 -> earliest : earliest - 1);
        able = (up && adopts && some(tainted) -> (able < ENOUGH -> able + 1 : able) : 0) }
    od
}
