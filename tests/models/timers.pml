/* Countdowns taken over from the built-in controller, whose timers cannot be moved: one pod, people, and leaders.
 *
 * The built-in controller arms one timer, at the least finite seconds of the taints that are tolerated. A leader marks
 * tolerations (seconds: MaxInt64) and notes their seconds, in one patch, before that timer ends; then it counts alone.
 * Of hand_back.pml and entry.pml there is all that may happen to the pod, and more: while a leader does not adopt,
 * or people have ordered "adopt nothing", seconds are given back at any moment.
 * ASSUMPTIONS, with those of tolerations.h
 *  6. The built-in controller sees a change within LAG ticks, and not necessarily every change. Once armed, its timer
 *     does not move; it is cancelled where no toleration that matches a taint has finite seconds.
 *  7. The owner's seconds are more than BEFORE ticks.
 * PROPERTIES
 *  P1 The built-in controller ends no pod where a leader that adopts was there, and was answered, for ENOUGH ticks
 *     since somebody else last made seconds count (a taint that is not tolerated for ever, the owner, hand-back).
 */
#include "tolerations.h"

#define BEFORE (LAG + 2 + WATCH) /* a countdown is taken over this long before the built-in's timer */
/* One request that is already under way, one mark, another for what the watch had not brought, and its being seen. */
#define ENOUGH (BEFORE + 1)
#define SLACK (TRACED * 2)    /* ticks of a trace are not the leader's: its 10 s have two or three of them */
#define BACK_AT_ONCE (MISTAKE == 1) /* gives back before the built-in must have seen the mark */
#define DUE_ONLY (MISTAKE == 2) /* only the toleration with the nearest deadline is marked */
#define PAUSED_TOO (MISTAKE == 3) /* nothing is taken over while evictions are paused */

mtype = { built_in_sees, built_in_restarts, built_in_evicts };
byte timer = NEVER, stale;           /* the built-in's timer, and for how long it has missed a change */
byte earliest = NEVER, without = LAG + 1;   /* for the leader: the earliest end of that timer; ticks without any */
bool anew;                           /* the countdown that runs began when there was none */
byte able;                           /* for how long an undisturbed leader has been able to take over */

#define tainted(i) taint[i]
#define counts(i) (taint[i] && spec[i] < MARK)
#define seconds(i) (counts(i) -> spec[i] : NEVER)
#define least (seconds(0) < seconds(N - 1) -> seconds(0) : seconds(N - 1))
#define to_mark(i) (known(i) && spec[i] < MARK && (!DUE_ONLY || spec[i] == least))
#define seen_without (without > LAG || anew && earliest + SLACK > BEFORE || BACK_AT_ONCE)
#define to_give_back(i) (noted(i) && (!adopts || !taint[i] && seen_without))
#define takes_over (up && adopts && !paused && some(to_mark))
/* A leader that adopts does this before the next tick. */
#define owes (idle && up && adopts && (takes_over && earliest <= BEFORE || some(to_give_back)))
#define less(x) (x == NEVER || x == 0 -> x : x - 1)

inline disturbed() { able = 0 }
inline changed() {
    stale = (stale -> stale : 1);
    anew = some(noted) && least != NEVER && (anew || without > LAG);
    without = (least == NEVER -> without : 0); earliest = (least < earliest -> least : earliest) }
inline written() { changed(); refuse_all() }
inline toggle(j) { able = (spec[j] < MARK && !taint[j] -> 0 : able); taint[j] = !taint[j]; changed() }
inline owner_sets(new) { spec[0] = new; able = 0; written() }
inline end() { up = 0; adopts = 0; able = 0 }

LATE_REQUESTS
active proctype all_of_it() {
    d_step { spec[0] = LONG; spec[N - 1] = (N == 2 -> SHORT : LONG) }
    BEGIN
    NODE_AND_OWNER
    PEOPLE_AND_HAND_BACK
    PEOPLE_PAUSE_AND_RESUME(PAUSED_TOO)
    /* The built-in controller. */
    HIDDEN(0, built_in_sees, stale) stale = 0; timer = (least == NEVER || timer == NEVER -> least : timer) }
    MOVE(0, built_in_restarts, timer != NEVER || TRACED) timer = NEVER; stale = (stale -> stale : 1) }
    MOVE(0, built_in_evicts, timer == 0) holds(able < ENOUGH) /* P1 */ }
    /* The leader. */
    MOVE(0, leader_with_flag, !up) up = 1; adopts = !order }
    MOVE(0, leader_without_flag, !up) up = 1 }
    LEADER_ENDS_OR_IS_ANSWERED
    HIDDEN(0, leader_reads, up && adopts == order) adopts = !order; able = 0 }
    MOVE(0, sends_mark, idle && takes_over) send(marked, to_mark) }
    MOVE(0, sends_give_back, up && idle && some(to_give_back)) send(given_back, to_give_back) }
    MOVE(0, tick, timer != 0 && stale <= LAG && all_in_time && watched_in_time && (!owes || TRACED))
        requests_age(); stale = (stale -> stale + 1 : 0); timer = less(timer);
        without = without + (least == NEVER && without <= LAG);
        earliest = (least == NEVER && without > LAG -> NEVER : less(earliest));
        able = (up && adopts && some(tainted) -> (able < ENOUGH -> able + 1 : able) : 0) }
    END
}
