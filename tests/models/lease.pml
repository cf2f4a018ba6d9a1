/* The Lease and the fence: who may send a request that ends a pod, and whose control state counts.
 *
 * Time is counted in ticks. One tick is longer than an API server that answers needs for a request.
 * ASSUMPTIONS
 *  1. The API server replaces the Lease, and the ConfigMap, only if the version that the writer read is still there.
 *  2. A process may crash, be suspended and resumed at any moment; a crashed one comes back under another name.
 *  3. Clocks count on while their processes are suspended. One clock loses at most one tick in LEASE ticks.
 *  4. A request that nobody waits for any more may still be decided, at any later time.
 *  5. Dates in the control state come from the API server's clock; no two changes have the same date.
 * PROPERTIES
 *  P1 No request that ends a pod is sent while another process may send one.
 *  P2 No two processes may act at the same moment.
 *  P3 Somebody leads within LEASE + 3 ticks of the last crash, suspension, or late request.
 *  P4 A latch or a reset that is written late, by a leader of former times, undoes nothing that was ordered since.
 */
#ifndef P
#define P 2          /* processes */
#endif
#ifndef RENEW
#define RENEW 2      /* the renew deadline */
#endif
#ifndef LEASE
#define LEASE (RENEW + 1)
#endif
#ifndef DATES
#define DATES 0      /* changes of the control state (P4, and leaders that come and go as P2 allows); 0: P1, P2, P3 */
#endif
#ifndef RELEASES
#define RELEASES 1   /* 0: nobody releases the Lease */
#endif
#define NOBODY P
#ifndef TRACE
#define AGAIN 0
#define seen(what, i) true
#define see(what) printf("@ %e %d\n", what, j)
#define holds(property) assert(property)
#define BEGIN skip;
#define END
#else                        /* accepts a trace: its moves in their order, with ticks and hidden moves in between */
#define AGAIN 1
#define hidden(what) (what == tick || what == unanswered || what == deposed || what == late_lost || \
                      what == reads_state)
#define seen(what, i) (!violated && (hidden(what) || expected(what, i)))
#define see(what) if :: hidden(what) -> skip :: else -> at++ fi
#define holds(property) violated = violated || !(property)
#include "acceptor.h"
#endif

/* The mistakes, each put in by -DMISTAKE=<its number>. */
#ifndef MISTAKE
#define MISTAKE 0
#endif
#define NO_FENCE (MISTAKE == 1) /* whether a process leads is checked when an eviction begins, and not again */
#define CLOCK_STOPS (MISTAKE == 2)         /* the clock stands still while the process is suspended */
#define COUNTED_FROM_ANSWER (MISTAKE == 3) /* the renew deadline counts from a renewal's answer, not from its sending */
#define LEASE_NO_LONGER (MISTAKE == 4)     /* the Lease lasts no longer than the renew deadline */
#define TIMES_BELIEVED (MISTAKE == 5) /* a standby believes the Lease's times, by a wall clock two ticks ahead */
#define RELEASED_AT_WORK (MISTAKE == 6)    /* the Lease is released while the process may still send */
#define UNTESTED (MISTAKE == 7)            /* writes of the Lease test no version */
#define LATE_LATCH (MISTAKE == 8) /* a latch is written without a look at whether somebody reset the breaker since */

mtype = { crashes, suspended, resumed, slow_clock, reads_lease, writes_lease, releases_lease, lease_stored,
          answered, unanswered, late_stored, late_lost, deposed, takes_over, begins_eviction, sends_eviction,
          decides_to_open, decides_to_reset, reads_state, writes_open, writes_reset, person_opens, person_resets, tick };
mtype = { Renewal, Release, Stored, Conflict, Opens, Resets, Free, Own, Others };
typedef Process {
    bool frozen, leading, working, tried;
    bool news;                               /* the Lease has changed since this process read or wrote it */
    mtype saw;                               /* what it showed then: 0: it was never read */
    byte since_renewal, since_seen, since_sent;       /* by its own clock */
    mtype asks, verdict;                     /* its write of the Lease: under way, and how it is decided */
    mtype wants; byte date; bool read        /* its write of the control state, and whether it would test well */
};
Process p[P];
byte holder = NOBODY, renewed_ago;           /* the Lease */
mtype late; byte late_of;                    /* a write of the Lease that nobody waits for */
bool is_open; byte changed, date = 1;           /* the control state: the breaker, when it was changed;
    the date of today */
byte lost, slow;                             /* which clock loses a tick; none can lose another for so long */
byte vacant, j, k;

#define may_act(i) (p[i].leading && p[i].since_renewal < RENEW)
#define leads(i) (awake(i) && p[i].leading)
#define expired(i) (TIMES_BELIEVED -> renewed_ago + 2 >= LEASE : p[i].since_seen >= (LEASE_NO_LONGER -> RENEW - \
    1 : LEASE))
#define awake(i) (!p[i].frozen)
#define free(i) (awake(i) && p[i].asks == 0)
#define may_write(i) (free(i) && (p[i].leading && p[i].saw || p[i].saw == Free || p[i].saw == Own || p[i].saw == Others && expired(i)))
#define owes(i) (awake(i) && (p[i].verdict || p[i].asks && p[i].since_sent >= 1 || (!p[i].saw || p[i].news && !p[i].leading) \
    && free(i) || leads(i) && !p[i].asks && p[i].since_renewal >= RENEW || may_write(i) && !p[i].tried))
#if P == 2
#define others(i, q) (q((1 - i)))
#define some(q) (q(0) || q(1))
#define both_act (may_act(0) && may_act(1))
#else
#define others(i, q) (q(((i + 1) % 3)) || q(((i + 2) % 3)))
#define some(q) (q(0) || q(1) || q(2))
#define both_act (may_act(0) && may_act(1) || may_act(1) && may_act(2) || may_act(0) && may_act(2))
#endif
#define each(...) k = 0; do :: k < P -> __VA_ARGS__; k++ :: else -> break od; k = 0
#define more(x, most) x = (x < most -> x + 1 : x)
#define MOVE(i, what, guard) :: d_step { (guard) && seen(what, i) -> j = i; see(what)

inline forget_request(i) { p[i].asks = 0; p[i].verdict = 0; p[i].since_sent = 0 }
inline ask(i, kind) { p[i].asks = kind; p[i].verdict = (p[i].news && !UNTESTED -> Conflict : 0); p[i].since_sent = 0; p[i].tried = 1 }
inline store(kind, i) { holder = (kind == Release -> NOBODY : i); renewed_ago = 0;
    each(p[k].news = 1; p[k].verdict = (p[k].asks && !p[k].verdict && !UNTESTED -> Conflict : p[k].verdict));
     if :: !UNTESTED -> late = 0; late_of = 0 :: else fi }
inline begin(i) { p[i].frozen = 0; p[i].leading = 0; p[i].working = 0; p[i].since_renewal = RENEW;
    p[i].since_seen = 0; p[i].news = 1; p[i].saw = 0;
    p[i].wants = 0; p[i].date = 0; p[i].read = 0; p[i].tried = 0; forget_request(i); vacant = 0 }
inline abandon(i) { if :: p[i].verdict == Stored -> p[i].news = 1 :: else fi;
    if :: !p[i].verdict -> late = p[i].asks; late_of = i :: else fi;
    forget_request(i); vacant = 0 }
inline state_changes(to, at) { is_open = to; changed = at; each(p[k].read = 0) }
inline wants_no_more(i) { p[i].wants = 0; p[i].date = 0; p[i].read = 0 }

#define i _pid
active [P] proctype process() {
    d_step { begin(i) }
    do
    MOVE(i, crashes, p[i].asks == 0 || p[i].verdict || late == 0);
           if :: p[i].asks -> abandon(i); late_of = (late && late_of == i -> NOBODY + 1 : late_of) :: else fi;
           if :: holder == i -> holder = NOBODY + 1 :: else fi; begin(i) }
#if DATES == 0
    MOVE(i, suspended, awake(i)); p[i].frozen = 1; vacant = 0 }
    MOVE(i, resumed, !awake(i)); p[i].frozen = 0; vacant = 0 }
    MOVE(i, slow_clock, lost == 0 && p[i].leading); lost = LEASE + 1; slow = i; vacant = 0 }
    /* The elector. */
    MOVE(i, reads_lease, free(i) && (p[i].news || !p[i].saw || AGAIN));
           p[i].since_seen = (p[i].news -> 0 : p[i].since_seen); p[i].news = 0;
           p[i].saw = (holder == NOBODY -> Free : (holder == i -> Own : Others));
           if :: p[i].saw != Own -> p[i].leading = 0; p[i].since_renewal = RENEW :: else fi }
    MOVE(i, writes_lease, may_write(i)); ask(i, Renewal) }
    MOVE(i, releases_lease, RELEASES && free(i) && p[i].leading && !p[i].news); p[i].leading = RELEASED_AT_WORK;
           ask(i, Release); vacant = 0 }
    MOVE(i, lease_stored, p[i].asks && !p[i].verdict); store(p[i].asks, i); p[i].news = 0;
           p[i].verdict = Stored;
           vacant = (awake(i) -> vacant : 0) }
    MOVE(i, answered, awake(i) && p[i].verdict);
           if :: p[i].verdict == Stored && p[i].asks == Renewal ->
                  p[i].leading = 1; p[i].saw = Own; p[i].since_seen = 0;
                  p[i].since_renewal = (COUNTED_FROM_ANSWER -> 0 : p[i].since_sent)
              :: p[i].verdict == Conflict -> p[i].saw = 0
              :: else fi;
           forget_request(i); holds(!both_act) /* P2 */ }
    MOVE(i, unanswered, awake(i) && p[i].asks && (p[i].verdict || late == 0)); abandon(i) }
    MOVE(i, deposed, free(i) && p[i].leading && p[i].since_renewal >= RENEW); p[i].leading = 0; p[i].since_seen = 0 }
    /* An eviction. */
    MOVE(i, begins_eviction, NO_FENCE && awake(i) && !p[i].working && may_act(i)); p[i].working = 1 }
    MOVE(i, sends_eviction, awake(i) && (NO_FENCE -> p[i].working : may_act(i))); holds(!others(i, may_act));
           /* P1 */ p[i].working = 0 }
#else
    /* The control state: decided while leading; read; written if it was not changed since, else read again. */
    MOVE(i, decides_to_open, awake(i) && may_act(i) && (!p[i].wants || AGAIN) && date < DATES); p[i].wants = Opens;
           p[i].date = date; date++ }
    MOVE(i, decides_to_reset, awake(i) && may_act(i) && (!p[i].wants || AGAIN) && date < DATES); p[i].wants = Resets;
           p[i].date = date; date++ }
    MOVE(i, reads_state, awake(i) && p[i].wants && !p[i].read); p[i].read = 1;
           if :: p[i].wants == Opens && (is_open || changed > p[i].date && !LATE_LATCH) -> wants_no_more(i)
              :: p[i].wants == Resets && (!is_open || changed > p[i].date) -> wants_no_more(i)
              :: else fi }
    MOVE(i, writes_open, p[i].wants == Opens && p[i].read); holds(changed < p[i].date); /* P4 */
           state_changes(1, p[i].date); wants_no_more(i) }
    MOVE(i, writes_reset, p[i].wants == Resets && p[i].read); holds(changed < p[i].date); /* P4 */
           state_changes(0, p[i].date); wants_no_more(i) }
    MOVE(i, takes_over, !p[i].leading || AGAIN); each(p[k].leading = 0); p[i].leading = 1; p[i].since_renewal = 0 }
#endif
    od
}

active proctype world() {
    BEGIN
    do
    END
    MOVE(late_of, late_stored, late); store(late, late_of); late = 0; late_of = 0; vacant = 0 }
    MOVE(late_of, late_lost, late); late = 0; late_of = 0; vacant = 0 }
    MOVE(0, person_opens, date < DATES); state_changes(1, date); date++ }
    MOVE(0, person_resets, date < DATES); state_changes(0, date); date++ }
    MOVE(0, tick, !DATES && (AGAIN || !some(owes)));
           each(if :: lost == LEASE + 1 && slow == k || CLOCK_STOPS && p[k].frozen -> skip
                   :: else -> if :: p[k].leading -> more(p[k].since_renewal, RENEW) :: else ->
                       more(p[k].since_seen, LEASE) fi;
                              if :: p[k].asks -> more(p[k].since_sent, RENEW) :: else fi fi;
                p[k].tried = 0);
           lost = (lost -> lost - 1 : 0); slow = (lost -> slow : 0);
           if :: TIMES_BELIEVED -> more(renewed_ago, LEASE) :: else fi;
           vacant = (some(leads) || !some(awake) -> 0 : vacant + 1); holds(vacant <= LEASE + 3) /* P3 */ }
    od
}
