/* The Lease and the fence: two processes, of which one leads, and may send requests that end pods.
 *
 * ASSUMPTIONS
 *  1. The API server replaces the Lease only if the version that the writer read is still there.
 *  2. A process may crash, be suspended and resumed at any moment; a crashed one comes back under another name.
 *  3. Clocks count on while their processes are suspended. A leader's clock loses at most one tick in LEASE ticks.
 *  4. A request that nobody waits for any more may still be decided, at any later time.
 * BOUNDS  RENEW: the renew deadline in ticks; RELEASES: whether a leader may release the Lease.
 * PROPERTIES
 *  P1 No request that ends a pod is sent while another process may send one.
 *  P2 No two processes may act at the same moment.
 *  P3 Somebody leads within LEASE + 2 ticks of the last crash, suspension, or late request.
 */
#include "trace.h"

#define LEASE (RENEW + 1)
#define NO_FENCE (MISTAKE == 1) /* whether a process leads is checked when an eviction begins, and not again */
#define CLOCK_STOPS (MISTAKE == 2) /* the clock stands still while the process is suspended */
#define COUNTED_FROM_ANSWER (MISTAKE == 3) /* the renew deadline counts from a renewal's answer, not from its sending */
#define LEASE_NO_LONGER (MISTAKE == 4) /* the Lease lasts no longer than the renew deadline */
#define TIMES_BELIEVED (MISTAKE == 5) /* a standby believes the Lease's times, by a wall clock two ticks ahead */
#define RELEASED_AT_WORK (MISTAKE == 6) /* the Lease is released while the process may still send */
#define UNTESTED (MISTAKE == 7) /* writes of the Lease test no version */

mtype = { crashes, suspended, resumed, slow_clock, reads_lease, writes_lease, releases_lease, lease_stored, answered,
          unanswered, late_stored, late_lost, begins_eviction, sends_eviction, tick };
mtype = { Renews, Releases, Stored, Refused };
#define NOBODY 2
#define CRASHED 3                    /* a process under its former name */
#define UNKNOWN 4
typedef Process {
    bool frozen, loses, working;
    byte saw = UNKNOWN; bool changed = 1;              /* who held the Lease when it was read; it has changed since */
    mtype request; byte since_sent;                    /* its renewal, and how that is decided; 0: none */
    byte since_seen, since_renewal = RENEW             /* by its own clock, as since_sent */
};
Process p[2];
byte holder = NOBODY, since_stored;                    /* the Lease */
mtype late; byte late_of;                              /* a write of the Lease that nobody waits for */
byte exact, vacant, k;                                 /* for how long clocks are exact; for how long nobody leads */

#define awake(i) (!p[i].frozen)
#define leads(i) (p[i].since_renewal < RENEW)
#define free(i) (awake(i) && !p[i].request)
#define expired(i) (TIMES_BELIEVED -> since_stored + 2 >= LEASE : p[i].since_seen >= LEASE - 2 * LEASE_NO_LONGER)
#define may_write(i) (free(i) && p[i].saw != UNKNOWN && (p[i].saw == i || p[i].saw == NOBODY || expired(i)))
/* A process that is awake does this before the next tick. */
#define owes(i) (awake(i) && (p[i].request && (p[i].request != Renews || p[i].since_sent)) || \
                 may_write(i) && p[i].since_renewal || free(i) && (p[i].saw == UNKNOWN || p[i].changed && !leads(i)))
#define count(ticks, most, counts) ticks = ticks + (ticks < most && counts)
#define nobody_leads !(awake(0) && leads(0)) && !(awake(1) && leads(1)) && (awake(0) || awake(1))

#define i _pid
#define me p[i]
inline end_request() { me.request = 0; me.since_sent = 0 }
inline abandon() {
    if :: me.request == Renews -> late = Renews; late_of = i :: me.request == Stored -> me.changed = 1 :: else fi;
    end_request(); vacant = 0 }
inline lose_late() { late = 0; late_of = 0 }
inline store(by) {
    holder = by; since_stored = 0;
    each(k, 2, p[k].changed = 1; p[k].request = (p[k].request == Renews && !UNTESTED -> Refused : p[k].request));
    if :: !UNTESTED -> lose_late() :: else fi }

active [2] proctype process() {
    do
    MOVE(i, crashes, me.request != Renews || !late)
        abandon(); holder = (holder == i -> CRASHED : holder); late_of = (late && late_of == i -> CRASHED : late_of);
        me.frozen = 0; me.working = 0; me.saw = UNKNOWN; me.changed = 1; me.since_seen = 0; me.since_renewal = RENEW }
    MOVE(i, (me.frozen -> resumed : suspended), true) me.frozen = !me.frozen; vacant = 0 }
    /* The elector. */
    MOVE(i, reads_lease, free(i) && (me.changed || me.saw == UNKNOWN || TRACED))
        me.since_seen = (me.changed -> 0 : me.since_seen); me.changed = 0; me.saw = holder;
        me.since_renewal = (holder == i -> me.since_renewal : RENEW) }
    MOVE(i, writes_lease, may_write(i)) me.request = (me.changed && !UNTESTED -> Refused : Renews) }
    MOVE(i, lease_stored, me.request == Renews)
        store(i); me.request = Stored; me.changed = 0; vacant = (!me.frozen -> vacant : 0) }
    MOVE(i, answered, !me.frozen && (me.request == Stored || me.request == Refused))
        if :: me.request == Refused -> me.saw = UNKNOWN
           :: else -> me.saw = i; me.since_seen = 0; me.since_renewal = (COUNTED_FROM_ANSWER -> 0 : me.since_sent) fi;
        end_request(); holds(!leads(0) || !leads(1)) /* P2 */ }
    HIDDEN(i, unanswered, !me.frozen && me.request && (me.request != Renews || !late)) abandon() }
    MOVE(i, releases_lease, RELEASES && free(i) && leads(i) && !me.changed && !late)   /* and does not wait */
        late = Releases; late_of = i; vacant = 0; me.since_renewal = (RELEASED_AT_WORK -> me.since_renewal : RENEW) }
    /* An eviction. */
    MOVE(i, begins_eviction, NO_FENCE && !me.frozen && leads(i)) me.working = 1 }
    MOVE(i, sends_eviction, !me.frozen && (NO_FENCE -> me.working : leads(i)))
        holds(!leads(1 - i)) /* P1 */; me.working = 0 }
    MOVE(i, slow_clock, !exact && leads(i)) exact = LEASE + 1; me.loses = 1; vacant = 0 }
    od
}
active proctype world() { BEGIN
    MOVE(late_of, late_stored, late)
        late_of = (late == Releases -> NOBODY : late_of); store(late_of); lose_late(); vacant = 0 }
    HIDDEN(late_of, late_lost, late) lose_late(); vacant = 0 }
    HIDDEN(0, tick, TRACED || !owes(0) && !owes(1))
        vacant = (nobody_leads -> vacant + 1 : 0); holds(vacant <= LEASE + 2) /* P3 */;
        each(k, 2, if :: p[k].loses || CLOCK_STOPS && p[k].frozen -> p[k].loses = 0
                      :: else -> count(p[k].since_seen, LEASE, !leads(k)); count(p[k].since_renewal, RENEW, true);
                                 count(p[k].since_sent, RENEW, p[k].request) fi);
        exact = (exact -> exact - 1 : 0); count(since_stored, LEASE, TIMES_BELIEVED) }
    END
}
