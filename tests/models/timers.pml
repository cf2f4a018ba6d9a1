/* Countdowns taken over from the built-in controller, whose timers cannot be moved: one pod, and leaders that all adopt.
 *
 * The built-in controller arms one timer, at the least finite seconds of the taints that are tolerated. A leader marks
 * tolerations (seconds: MaxInt64) and notes their seconds, in one patch, before that timer ends; then it counts alone.
 * Time is counted in ticks. One tick is longer than an API server that answers needs for a request.
 * ASSUMPTIONS
 *  1. At most one process leads, and sends nothing once it does not (elections.pml shows that). The next one may lead
 *     at once. A leader may die at any moment; its request stays under way.
 *  2. A request that was sent is decided or lost within LIFE ticks, also where nobody waits for the answer.
 *  3. The built-in controller sees a change within LAG ticks, and not necessarily every change. Once armed, its timer
 *     does not move; it is cancelled where no toleration that matches a taint has finite seconds.
 *  4. The owner's seconds are more than BEFORE ticks. The owner never writes MaxInt64 where a note stands.
 * PROPERTIES
 *  P1 This controller ends no pod before the seconds that its owner set last have passed.
 *  P2 The built-in controller ends no pod where a leader was there, and was answered, for ENOUGH ticks since somebody
 *     else last made seconds count (a taint that is not tolerated for ever, the owner's seconds).
 *  P3 A toleration that is given back has the seconds that its owner set last.
 */
#define hidden(move) (move == request_late || move == late_request_lost || move == outdated || move == built_in_sees)
#include "trace.h"

#ifndef N
#define N 1                  /* tolerations of the pod, each the first match of a taint of its own */
#endif
#ifndef OWNER
#define OWNER 1              /* 0: the owner changes nothing */
#endif
#ifndef LIFE
#define LIFE 2
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

mtype = { taint_0, untaint_0, taint_1, untaint_1, owner_short, owner_long, owner_ever, owner_removes_annotation,
          built_in_sees, built_in_restarts, built_in_evicts, leader_with_flag, leader_ends, leader_ends_request_late,
          request_late, late_request_decided, late_request_lost, outdated, answered, marked, given_back, refused,
          sends_mark, sends_give_back, evicts, tick };
mtype = { Mark, Give };
typedef Request { mtype kind; bool tested; byte age; byte seconds[N] };   /* 0: not this toleration */
Request mine, late;                  /* the request whose answer the leader awaits; one that nobody waits for */
bool taint[N]; byte since[N];        /* the taints of the node, and the ticks since each was set */
byte spec[N], note[N], word[N];      /* word: the seconds that the owner set last; nobody can read it */
byte timer = NEVER, stale;           /* the built-in's timer, and for how long it has missed a change */
bool up, gone;
byte earliest = NEVER, without = LAG + 1;   /* for the leader: the earliest end of that timer; ticks without any */
byte able;                           /* for how long an undisturbed leader has been able to take over */
byte i, least;

#if N == 1
#define some(p) (p(0))
#else
#define some(p) (p(0) || p(1))
#endif
#define each(...) i = 0; do :: i < N -> __VA_ARGS__; i++ :: else -> break od; i = 0
#define idle (mine.kind == 0)
#define tainted(i) taint[i]
#define counts(i) (taint[i] && spec[i] < MARK)
#define noted(i) (spec[i] == MARK && note[i] != 0)
#define returns(i) (noted(i) && !taint[i] && (without > LAG || BACK_AT_ONCE))
#define ends(i, s) (taint[i] && s < MARK && since[i] >= s)
#define due(i) ends(i, (noted(i) -> note[i] : spec[i]))
#define passed(i) ends(i, word[i])
#define wrong(i) (spec[i] != MARK && spec[i] != word[i])
/* A leader does this before the next tick. */
#define owes (!TRACED && idle && up && (some(counts) && earliest <= BEFORE || some(returns)))
/* What a request comes to: told apart in traces. */
#define outcome(r, what) (!TRACED -> what : (!r.tested -> refused : (r.kind == Mark -> marked : given_back)))

inline find_least() { least = NEVER; each(least = (counts(i) && spec[i] < least -> spec[i] : least)) }
inline changed() { stale = (stale -> stale : 1); find_least(); without = (least == NEVER -> without : 0);
    earliest = (least < earliest -> least : earliest) }
inline written() { changed(); late.tested = 0; mine.tested = 0 }
inline toggle(j) { able = (spec[j] < MARK && !taint[j] -> 0 : able); taint[j] = !taint[j]; since[j] = 0; changed() }
inline owner_sets(seconds) { spec[0] = seconds; word[0] = seconds; able = 0; written() }
inline forget(r) { r.kind = 0; r.tested = 0; r.age = 0; each(r.seconds[i] = 0) }
inline give_up() { late.kind = mine.kind; late.tested = mine.tested; late.age = mine.age;
    each(late.seconds[i] = mine.seconds[i]); forget(mine) }
inline decide(r) {                   /* the API server decides a request */
    if :: r.tested -> each(if :: r.seconds[i] && r.kind == Mark -> spec[i] = MARK; note[i] = r.seconds[i]
                              :: r.seconds[i] && r.kind == Give -> spec[i] = r.seconds[i]; note[i] = 0
                              :: else fi);
                      written(); holds(!some(wrong)) /* P3 */
       :: else -> able = 0 fi;
    forget(r) }

active proctype all_of_it() {
    BEGIN
    d_step { each(spec[i] = (i == 0 -> LONG : SHORT); word[i] = spec[i]) }
    do
    END
    /* The node and the owner. */
    MOVE(0, taint_0, !taint[0]) toggle(0) }
    MOVE(0, untaint_0, taint[0]) toggle(0) }
#if N == 2
    MOVE(0, taint_1, !taint[1]) toggle(1) }
    MOVE(0, untaint_1, taint[1]) toggle(1) }
#endif
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
    MOVE(0, leader_with_flag, !up) up = 1 }
    MOVE(0, leader_ends, up && idle) up = 0; able = 0 }
    MOVE(0, (TRACED -> leader_ends : leader_ends_request_late), up && !idle && late.kind == 0)
        give_up(); up = 0; able = 0 }
    MOVE(0, request_late, up && !idle && late.kind == 0) give_up(); able = 0 }
    MOVE(0, outcome(mine, answered), !idle) decide(mine) }
    MOVE(0, outcome(late, late_request_decided), late.kind) able = 0; decide(late) }
    MOVE(0, late_request_lost, late.kind) forget(late) }
    MOVE(0, outdated, TRACED && mine.tested) mine.tested = 0 }
    /* The leader. */
    MOVE(0, sends_mark, up && idle && some(counts)) mine.kind = Mark; mine.tested = 1; find_least();
        each(if :: counts(i) && !(DUE_ONLY && spec[i] != least) -> mine.seconds[i] = spec[i];
                       least = (DUE_ONLY -> NEVER : least)
                :: else fi) }
    MOVE(0, sends_give_back, up && idle && some(returns)) mine.kind = Give; mine.tested = 1;
        each(mine.seconds[i] = (returns(i) -> note[i] : 0)) }
    MOVE(0, evicts, up && some(due)) holds(some(passed)) /* P1 */; gone = 1 }
    :: gone -> break
    MOVE(0, tick, timer != 0 && stale <= LAG && (idle || mine.age < 1) && (late.kind == 0 || late.age < LIFE) && !owes)
        each(since[i] = (taint[i] && since[i] < LONG -> since[i] + 1 : since[i]));
        timer = (timer == NEVER -> NEVER : timer - 1); stale = (stale -> stale + 1 : 0);
        mine.age = mine.age + !idle; late.age = late.age + (late.kind != 0); find_least();
        without = (least == NEVER && without <= LAG -> without + 1 : without);
        earliest = (least == NEVER && without > LAG -> NEVER : earliest);
        earliest = (earliest == NEVER || earliest == 0 -> earliest : earliest - 1);
        able = (up && some(tainted) -> (able < ENOUGH -> able + 1 : able) : 0) }
    od
}
