/* Countdowns taken over from the built-in controller, and given back: every order of what may happen to one pod.
 *
 * Time is counted in ticks. One tick is longer than an API server that answers needs for a request.
 * ASSUMPTIONS
 *  1. At most one process leads, and sends nothing once it does not (elections.pml shows that). The next one may lead
 *     at once. A leader may die at any moment; its requests stay under way.
 *  2. A request that was sent is decided or lost within LIFE ticks, also where nobody waits for the answer.
 *  3. The built-in controller sees a change within LAG ticks, and not necessarily every change. Once armed, its timer
 *     does not move; it is cancelled where no toleration that matches a taint has finite seconds.
 *  4. The owner's seconds are more than BEFORE ticks. The owner never writes MaxInt64 where a note stands.
 *  5. Nobody takes the right to mark away. The order "adopt nothing" stays until people end it.
 * PROPERTIES
 *  P1 Once hand-back has said that nothing is adopted, no pod has, or gets, a mark with a note.
 *  P2 This controller ends no pod before the seconds that its owner set last have passed.
 *  P3 The built-in controller ends no pod where a leader that adopts was there, and was answered, for ENOUGH ticks
 *     since somebody else last made seconds count (a taint that is not tolerated for ever, the owner's seconds).
 *  P4 While a pod has a mark with a note, the state ConfigMap says that somebody adopts.
 *  P5 A mark with a note whose taint is gone is given back within OWED ticks of a leader that is answered.
 *  P6 A toleration that is given back has the seconds that its owner set last.
 */
#ifndef N
#define N 1          /* tolerations of the pod, each the first match of a taint of its own */
#endif
#ifndef LIFE
#define LIFE 2
#endif
#ifndef LAG
#define LAG 1
#endif
#ifndef LATE
#define LATE 1       /* requests at once that nobody waits for any more */
#endif
#ifndef TIMERS
#define TIMERS 1     /* 0: without the built-in controller and deadlines (P1, P4, P5, P6) */
#endif
#ifndef PEOPLE
#define PEOPLE 1     /* 0: without hand-back, and with leaders that all adopt (P2, P3, P6) */
#endif
#ifndef OWNER
#define OWNER 1      /* 0: the owner changes nothing */
#endif
#define WAIT (LIFE + 1)      /* 75 s: until then a request of a dead leader is decided */
#define BEFORE (LAG + 2)     /* a countdown is taken over this long before the built-in's timer */
#define ENOUGH (BEFORE + 1)  /* one request that is already under way, one mark, and its being seen */
#define SHORT (BEFORE + 1)   /* the owner's seconds are SHORT or LONG */
#define LONG (BEFORE + 2)
#define HOUR (WAIT + 1)      /* how often a leader looks for notes */
#define OWED (HOUR + 3)
#define MARK 14              /* MaxInt64 */
#define EVER 15              /* no seconds: the owner's "indefinitely" */
#define NEVER 15
#define hidden(what) (what == request_late || what == late_request_lost || what == leader_reads || what == looks || \
                      what == sends_entry || what == sends_leave || what == sends_confirmation || what == nothing_done || \
                      what == outdated || what == built_in_sees || what == hand_back_waits)
#include "trace.h"

mtype = { taint_0, untaint_0, owner_short, owner_long, owner_ever, owner_removes_annotation, taint_1, untaint_1,
          built_in_sees, built_in_restarts, built_in_evicts, leader_with_flag, leader_without_flag, leader_ends,
          leader_ends_request_late, request_late, answered, late_request_decided, outdated, marked, given_back,
           entered_it, left_it, confirmed_it, refused, nothing_done, late_request_lost, leader_reads,
          sends_entry, sends_mark, sends_give_back, looks, sends_leave, sends_confirmation, evicts,
          hand_back_orders, hand_back_waits, hand_back_gives_back, hand_back_says_nothing_is_adopted, order_ends,
          tick };
mtype = { Mark, Give, Enter, Leave, Confirm, Nobody, Ordered, Counting, Said };
typedef Request { mtype kind; bool tested; byte age; byte noted[N]; bool which[N] };
Request mine, late[LATE];            /* the request whose answer the leader awaits; those that nobody waits for */
bool taint[N]; byte since[N];        /* the taints of the node, and the ticks since each was set */
byte spec[N], note[N], word[N];      /* word: the seconds that the owner set last; nobody can read it */
byte timer = NEVER, stale;           /* the built-in's timer, and for how long it has missed a change */
byte earliest = NEVER, without = LAG + 1;   /* the earliest moment of that timer that a leader can compute */
bool entry, order, confirmed;        /* the state ConfigMap */
bool up, flag, fresh, heard, this_order, entered, saw_entry, knows, clean; byte age, look;   /* the leader */
mtype hand_back = Nobody; byte quiet;
byte able, owed;                     /* for how long a leader has been able to take over; has owed a give-back */
byte i, k, least; bool gone, all;

#if N == 1
#define some(p) (p(0))
#else
#define some(p) (p(0) || p(1))
#endif
#define each(...) i = 0; do :: i < N -> __VA_ARGS__; i++ :: else -> break od; i = 0
#define tainted(i) taint[i]
#define finite(i) (spec[i] < MARK)
#define counts(i) (taint[i] && finite(i))
#define noted(i) (spec[i] == MARK && note[i] != 0)
#define astray(i) (noted(i) && !taint[i])
#define seconds(i) (noted(i) -> note[i] : spec[i])
#define due(i) (taint[i] && seconds(i) < MARK && since[i] >= seconds(i))
#define passed(i) (taint[i] && word[i] < MARK && since[i] >= word[i])
#define wrong(i) (spec[i] != MARK && spec[i] != word[i])
#define idle (mine.kind == 0)
#define adopts (up && flag && fresh && !heard && (entered || MARKED_FIRST))
#define gives (up && fresh && (flag || saw_entry))
#define returns(i) (noted(i) && (!flag || heard || !taint[i] && (without > LAG || !TIMERS || BACK_AT_ONCE)))

/* The mistakes, each put in by -DMISTAKE=<its number>. */
#define SAID_ONCE_CONFIRMED (MISTAKE == 1) /* hand-back believes the confirmation and does not wait */
#define NOT_CONFIRMED (MISTAKE == 2)       /* hand-back waits for no confirmation, and counts from its order */
#define ANY_ORDER (MISTAKE == 3)           /* a confirmation does not name the order that it confirms */
#define OLD_ORDERS (MISTAKE == 4)          /* a new leader acts by the control state that it read before it led */
#define UNTESTED (MISTAKE == 5)            /* patches test neither the pod's version nor its tolerations */
#define MARKED_FIRST (MISTAKE == 6)        /* marks before the state ConfigMap says that this process adopts */
#define ENTRY_FOUND (MISTAKE == 7)         /* a leader that finds the entry does not write it again */
#define LEFT_EARLY (MISTAKE == 8)          /* a leader without the flag removes the entry after its first look */
#define LOOKS_ONCE (MISTAKE == 9)          /* a leader looks for notes only when it begins to lead */
#define BACK_AT_ONCE (MISTAKE == 10)       /* gives back before the built-in must have seen the mark */
#define DUE_ONLY (MISTAKE == 11)           /* only the toleration with the nearest deadline is marked */

inline find_least() { least = NEVER; each(if :: counts(i) && spec[i] < least -> least = spec[i] :: else fi) }
inline changed() { stale = (TIMERS && !stale -> 1 : stale); find_least();
    if :: TIMERS && least != NEVER -> without = 0; earliest = (least < earliest -> least : earliest) :: else fi }
inline overtaken(a, b) { k = 0;
    do :: k < LATE -> if :: late[k].kind == a || late[k].kind == b -> late[k].tested = 0 :: else fi;
        k++ :: else -> break od; k = 0;
    if :: mine.kind == a || mine.kind == b -> mine.tested = 0 :: else fi }
inline written() { changed();
    if :: !UNTESTED -> overtaken(Mark, Give) :: else fi }
inline send(what) { mine.kind = what; mine.tested = 1; mine.age = 0 }
inline forget(r) { r.kind = 0; r.tested = 0; r.age = 0; each(r.noted[i] = 0; r.which[i] = 0) }
inline decide(r) {                   /* the API server decides a request */
    if :: (r.kind == Mark || r.kind == Give) && r.tested ->
            each(if :: r.which[i] && r.kind == Mark -> spec[i] = MARK; note[i] = r.noted[i]
                    :: r.which[i] && r.kind == Give -> spec[i] = r.noted[i]; note[i] = 0
                    :: else fi);
            written(); holds(!some(wrong)) /* P6 */
       :: r.kind == Enter -> entry = 1; overtaken(Leave, Leave)
       :: r.kind == Leave && r.tested -> entry = 0
       :: r.kind == Confirm && r.tested -> confirmed = 1
       :: else fi }
inline leaderless() { up = 0; flag = 0; fresh = 0; heard = 0; this_order = 0; entered = 0; saw_entry = 0;
    knows = 0; clean = 0; age = 0;
    look = 0; able = 0; owed = 0 }

#define owes (!TRACED && (idle && up && fresh && flag && !heard && !entered || idle && adopts && some(counts) \
    && earliest <= BEFORE || idle && gives && knows && some(returns) || PEOPLE && gives && look == 0))
/* What a request comes to: told apart in traces. */
#define outcome(r, what) (!TRACED -> what : (r.kind == Enter -> entered_it : (!r.tested -> \
    (r.kind == Mark || r.kind == Give -> refused : nothing_done) : (r.kind == Mark -> marked : (r.kind == Give -> \
    given_back : (r.kind == Leave -> left_it : confirmed_it))))))
inline properties() { holds(!(hand_back == Said && some(noted)));  /* P1 */
                      holds(!some(noted) || entry) }               /* P4 */
inline give_up(k) {                  /* the answer does not come in time: the request stays under way */
    late[k].kind = mine.kind; late[k].tested = mine.tested; late[k].age = mine.age;
    each(late[k].noted[i] = mine.noted[i]; late[k].which[i] = mine.which[i]); forget(mine) }

/* the node, its pod's owner */
inline toggle(j) { if :: finite(j) && !taint[j] -> able = 0 :: else fi;
                   taint[j] = !taint[j]; since[j] = 0; owed = 0; changed() }
inline owner_sets(j, s) { spec[j] = s; word[j] = s; undisturbed(); written() }
inline undisturbed() { able = 0; owed = 0 }

active proctype all_of_it() {
    BEGIN
    d_step { each(spec[i] = (i == 0 -> LONG : SHORT); word[i] = spec[i]) }
    do
    END
    /* The node and the owner. */
    MOVE(0, taint_0, !taint[0]) toggle(0) }
    MOVE(0, untaint_0, taint[0]) toggle(0) }
    MOVE(0, owner_short, TIMERS && OWNER && spec[0] != SHORT) owner_sets(0, SHORT) }
    MOVE(0, owner_long, OWNER && spec[0] != LONG) owner_sets(0, LONG) }
    MOVE(0, owner_ever, OWNER && spec[0] != EVER) owner_sets(0, EVER) }
    MOVE(0, owner_removes_annotation, OWNER && note[0] != 0) note[0] = 0; if :: spec[0] == MARK ->
           word[0] = MARK :: else fi; undisturbed(); written() }
#if N == 2
    MOVE(0, taint_1, !taint[1]) toggle(1) }
    MOVE(0, untaint_1, taint[1]) toggle(1) }
#endif
    /* The built-in controller. */
    MOVE(0, built_in_sees, stale) stale = 0; find_least();
           if :: least == NEVER -> timer = NEVER :: least != NEVER && timer == NEVER -> timer = least :: else fi }
    MOVE(0, built_in_restarts, timer != NEVER || TRACED) timer = NEVER; stale = (stale ->
           stale : 1) }          /* it restarts */
    MOVE(0, built_in_evicts, timer == 0) holds(able < ENOUGH); /* P3 */ gone = 1 }
    /* Leaders begin and die; requests are decided, late or lost. */
    MOVE(0, leader_with_flag, !up) quiet = 0; up = 1; flag = 1; fresh = (OLD_ORDERS || !PEOPLE);
           entered = !PEOPLE; knows = !PEOPLE; entry = (entry || !PEOPLE) }
    MOVE(0, leader_without_flag, PEOPLE && !up) quiet = 0; up = 1; fresh = OLD_ORDERS }
    MOVE(0, leader_ends, up && idle) leaderless() }
    MOVE(0, (TRACED -> leader_ends : leader_ends_request_late), up && !idle && late[0].kind == 0) give_up(0);
           leaderless() }
    MOVE(0, request_late, up && !idle && late[0].kind == 0) give_up(0); undisturbed() }
    MOVE(0, outcome(mine, answered), !idle) if :: mine.kind == Enter -> entered = 1
                       :: mine.kind == Mark && mine.tested -> knows = 1
                       :: mine.kind == Leave && mine.tested -> saw_entry = 0
                       :: !mine.tested -> undisturbed()
                       :: else fi;
                    decide(mine); forget(mine); properties() }
    MOVE(0, outcome(late[0], late_request_decided), late[0].kind != 0) undisturbed(); decide(late[0]); forget(late[0]);
           properties() }
    MOVE(0, outdated, TRACED && (mine.kind == Mark || mine.kind == Give) && mine.tested) mine.tested = 0 }
    MOVE(0, late_request_lost, late[0].kind != 0) forget(late[0]) }
    /* The leader. */
    MOVE(0, leader_reads, PEOPLE && up && (!fresh || heard != order || heard && !this_order || saw_entry != entry))
           fresh = 1; heard = order; this_order = order; saw_entry = entry;
           entered = entry && (entered || ENTRY_FOUND) }
    MOVE(0, sends_entry, up && idle && fresh && flag && !heard && !entered) send(Enter) }
    MOVE(0, sends_mark, adopts && idle && some(counts))
           send(Mark); find_least(); all = 0;
           each(if :: counts(i) && !(DUE_ONLY && (spec[i] != least || all)) ->
                      mine.which[i] = 1; mine.noted[i] = spec[i]; all = 1
                   :: else fi) }
    MOVE(0, sends_give_back, gives && idle && (knows || TRACED) && some(returns))
           send(Give); each(if :: returns(i)
           -> mine.which[i] = 1;
               mine.noted[i] = note[i] :: else fi) }
    MOVE(0, looks, PEOPLE && gives && look == 0) knows = some(noted);
           clean = ((age == WAIT || LEFT_EARLY) && !knows);
           look = (LOOKS_ONCE -> NEVER : (age == 0 -> WAIT : HOUR)) }
    MOVE(0, sends_leave, gives && idle && !flag && clean && (age == WAIT || LEFT_EARLY) && saw_entry)
           send(Leave) }
    MOVE(0, sends_confirmation, up && idle && fresh && heard && (!confirmed || TRACED)) send(Confirm);
           mine.tested = this_order }
    MOVE(0, evicts, TIMERS && up && fresh && some(due)) holds(some(passed)); /* P2 */ gone = 1 }
    /* People and hand-back. */
    MOVE(0, hand_back_orders, PEOPLE && hand_back == Nobody) hand_back = Ordered; order = 1; confirmed = 0;
           undisturbed() }
    MOVE(0, hand_back_waits, hand_back == Ordered && (confirmed || !up || NOT_CONFIRMED))
           hand_back = Counting; quiet = 0 }
    MOVE(0, hand_back_gives_back, hand_back == Counting && some(noted)) each(if :: noted(i) ->
           spec[i] = note[i]; note[i] = 0 :: else fi);
           written(); holds(!some(wrong)) }
    MOVE(0, hand_back_says_nothing_is_adopted, hand_back == Counting && (quiet == WAIT || SAID_ONCE_CONFIRMED) &&
           !some(noted)) hand_back = Said; entry = 0; overtaken(Leave, Leave) }
    MOVE(0, order_ends, order) undisturbed(); this_order = ANY_ORDER; hand_back = Nobody; order = 0;
           confirmed = 0; quiet = 0; if :: !ANY_ORDER -> overtaken(Confirm, Confirm) :: else fi }
    :: gone -> break
    /* Time. */
    MOVE(0, tick, timer != 0 && stale <= LAG && (idle || mine.age < 1) && (late[0].kind == 0 || late[0].age < LIFE)
           && !owes) each(since[i] = (TIMERS && taint[i] && since[i] < LONG -> since[i] + 1 : since[i]));
           timer = (timer == NEVER -> NEVER : timer - 1); stale = (stale -> stale + 1 : 0);
           mine.age = mine.age + !idle; late[0].age = late[0].age + (late[0].kind != 0);
           age = (PEOPLE && up && age < WAIT -> age + 1 : age); look = (look == 0 || look == NEVER ->
               look : look - 1);
           quiet = (hand_back == Counting && quiet < WAIT -> quiet + 1 : quiet);
           find_least();
           if :: TIMERS && least == NEVER -> without = (without <= LAG -> without + 1 : without);
                                   if :: without > LAG -> earliest = NEVER :: else fi
              :: else fi;
           earliest = (earliest == NEVER || earliest == 0 -> earliest : earliest - 1);
           able = (TIMERS && adopts && some(tainted) -> (able < ENOUGH -> able + 1 : able) : 0);
           owed = (PEOPLE && gives && some(astray) -> owed + 1 : 0); holds(owed <= OWED) /* P5 */ }
    od
}
