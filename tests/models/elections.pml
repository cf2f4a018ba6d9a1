/* The Lease and the fence: two processes, of which one leads, and may send requests that end pods.
 *
 * Time is counted in ticks. One tick is longer than an API server that answers needs for a request.
 * ASSUMPTIONS
 *  1. The API server replaces the Lease only if the version that the writer read is still there.
 *  2. A process may crash, be suspended and resumed at any moment; a crashed one comes back under another name.
 *  3. Clocks count on while their processes are suspended. One clock loses at most one tick in LEASE ticks.
 *  4. A request that nobody waits for any more may still be decided, at any later time.
 * PROPERTIES
 *  P1 No request that ends a pod is sent while another process may send one.
 *  P2 No two processes may act at the same moment.
 *  P3 Somebody leads within LEASE + 3 ticks of the last crash, suspension, or late request.
 */
#define hidden(move) (move == tick || move == unanswered || move == deposed || move == late_lost)
#include "trace.h"

#ifndef RENEW
#define RENEW 2              /* the renew deadline */
#endif
#ifndef RELEASES
#define RELEASES 1           /* 0: nobody releases the Lease */
#endif
#define LEASE (RENEW + 1)
#define NOBODY 2
#define NOBODY_ANY_MORE 3    /* a process that crashed */
#define NO_FENCE (MISTAKE == 1) /* whether a process leads is checked when an eviction begins, and not again */
#define CLOCK_STOPS (MISTAKE == 2) /* the clock stands still while the process is suspended */
#define COUNTED_FROM_ANSWER (MISTAKE == 3) /* the renew deadline counts from a renewal's answer, not from its sending */
#define LEASE_NO_LONGER (MISTAKE == 4) /* the Lease lasts no longer than the renew deadline */
#define TIMES_BELIEVED (MISTAKE == 5) /* a standby believes the Lease's times, by a wall clock two ticks ahead */
#define RELEASED_AT_WORK (MISTAKE == 6) /* the Lease is released while the process may still send */
#define UNTESTED (MISTAKE == 7) /* writes of the Lease test no version */

mtype = { crashes, suspended, resumed, slow_clock, reads_lease, writes_lease, releases_lease, lease_stored, answered,
          unanswered, late_stored, late_lost, deposed, begins_eviction, sends_eviction, tick };
mtype = { Renewal, Release, Stored, Conflict, Free, Own, Others };
typedef Process {
    bool frozen, leading, working, tried;
    bool news; mtype saw;                /* the Lease changed since it was read or written; what it showed then, 0: nothing */
    byte since_renewal, since_seen, since_sent;       /* by its own clock */
    mtype asks, verdict                  /* its write of the Lease: under way, and how it is decided */
};
Process p[2];
byte holder = NOBODY, renewed_ago;       /* the Lease */
mtype late; byte late_of;                /* a write of the Lease that nobody waits for */
byte lost, slow;                         /* whose clock loses a tick; none loses another one for so long */
byte vacant, k;

#define awake(i) (!p[i].frozen)
#define may_act(i) (p[i].leading && p[i].since_renewal < RENEW)
#define expired(i) (TIMES_BELIEVED -> renewed_ago + 2 >= LEASE : p[i].since_seen >= LEASE - 2 * LEASE_NO_LONGER)
#define free(i) (awake(i) && p[i].asks == 0)
#define may_write(i) (free(i) && p[i].saw && (p[i].leading || p[i].saw != Others || expired(i)))
#define fails(i) (p[i].leading && p[i].since_renewal >= RENEW)
/* A process that is awake does this before the next tick. */
#define owes(i) (awake(i) && (p[i].verdict || p[i].asks && p[i].since_sent >= 1) || \
                 free(i) && (!p[i].saw || p[i].news && !p[i].leading || fails(i) || may_write(i) && !p[i].tried))
#define more(x, most) x = (x < most -> x + 1 : x)

inline forget_request(i) { p[i].asks = 0; p[i].verdict = 0; p[i].since_sent = 0 }
inline ask(i, kind) { p[i].asks = kind; p[i].verdict = (p[i].news && !UNTESTED -> Conflict : 0); p[i].since_sent = 0;
    p[i].tried = 1 }
inline abandon(i) { if :: p[i].verdict == Stored -> p[i].news = 1 :: else fi;
    if :: !p[i].verdict -> late = p[i].asks; late_of = i :: else fi; forget_request(i); vacant = 0 }
inline store(kind, i) { holder = (kind == Release -> NOBODY : i); renewed_ago = 0;
    each(k, 2, p[k].news = 1; p[k].verdict = (p[k].asks && !p[k].verdict && !UNTESTED -> Conflict : p[k].verdict));
    if :: !UNTESTED -> late = 0; late_of = 0 :: else fi }
inline begin(i) { p[i].frozen = 0; p[i].leading = 0; p[i].working = 0; p[i].since_renewal = RENEW; p[i].since_seen = 0;
    p[i].news = 1; p[i].saw = 0; p[i].tried = 0; forget_request(i); vacant = 0 }

#define i _pid
active [2] proctype process() {
    d_step { begin(i) }
    do
    MOVE(i, crashes, p[i].asks == 0 || p[i].verdict || late == 0)
        if :: p[i].asks -> abandon(i); late_of = (late && late_of == i -> NOBODY_ANY_MORE : late_of) :: else fi;
        holder = (holder == i -> NOBODY_ANY_MORE : holder); begin(i) }
    MOVE(i, suspended, awake(i)) p[i].frozen = 1; vacant = 0 }
    MOVE(i, resumed, !awake(i)) p[i].frozen = 0; vacant = 0 }
    MOVE(i, slow_clock, lost == 0 && p[i].leading) lost = LEASE + 1; slow = i; vacant = 0 }
    /* The elector. */
    MOVE(i, reads_lease, free(i) && (p[i].news || !p[i].saw || TRACED))
        p[i].since_seen = (p[i].news -> 0 : p[i].since_seen); p[i].news = 0;
        p[i].saw = (holder == NOBODY -> Free : (holder == i -> Own : Others));
        if :: p[i].saw != Own -> p[i].leading = 0; p[i].since_renewal = RENEW :: else fi }
    MOVE(i, writes_lease, may_write(i)) ask(i, Renewal) }
    MOVE(i, releases_lease, RELEASES && free(i) && p[i].leading && !p[i].news)
        p[i].leading = RELEASED_AT_WORK; ask(i, Release); vacant = 0 }
    MOVE(i, lease_stored, p[i].asks && !p[i].verdict)
        store(p[i].asks, i); p[i].news = 0; p[i].verdict = Stored; vacant = (awake(i) -> vacant : 0) }
    MOVE(i, answered, awake(i) && p[i].verdict)
        if :: p[i].verdict == Stored && p[i].asks == Renewal -> p[i].leading = 1; p[i].saw = Own; p[i].since_seen = 0;
                  p[i].since_renewal = (COUNTED_FROM_ANSWER -> 0 : p[i].since_sent)
           :: p[i].verdict == Conflict -> p[i].saw = 0
           :: else fi;
        forget_request(i); holds(!(may_act(0) && may_act(1))) /* P2 */ }
    MOVE(i, unanswered, awake(i) && p[i].asks && (p[i].verdict || late == 0)) abandon(i) }
    MOVE(i, deposed, free(i) && fails(i)) p[i].leading = 0; p[i].since_seen = 0 }
    /* An eviction. */
    MOVE(i, begins_eviction, NO_FENCE && awake(i) && !p[i].working && may_act(i)) p[i].working = 1 }
    MOVE(i, sends_eviction, awake(i) && (NO_FENCE -> p[i].working : may_act(i)))
        holds(!may_act(1 - i)) /* P1 */; p[i].working = 0 }
    od
}

active proctype world() {
    BEGIN
    do
    END
    MOVE(late_of, late_stored, late) store(late, late_of); late = 0; late_of = 0; vacant = 0 }
    MOVE(late_of, late_lost, late) late = 0; late_of = 0; vacant = 0 }
    MOVE(0, tick, TRACED || !owes(0) && !owes(1))
        each(k, 2, if :: lost == LEASE + 1 && slow == k || CLOCK_STOPS && p[k].frozen -> skip
                :: else -> if :: p[k].leading -> more(p[k].since_renewal, RENEW)
                              :: else -> more(p[k].since_seen, LEASE) fi;
                           if :: p[k].asks -> more(p[k].since_sent, RENEW) :: else fi fi;
             p[k].tried = 0);
        lost = (lost -> lost - 1 : 0); slow = (lost -> slow : 0);
        if :: TIMES_BELIEVED -> more(renewed_ago, LEASE) :: else fi;
        vacant = ((awake(0) && p[0].leading) || (awake(1) && p[1].leading) || !awake(0) && !awake(1) -> 0 : vacant + 1);
        holds(vacant <= LEASE + 3) /* P3 */ }
    od
}
