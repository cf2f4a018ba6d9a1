/* The control state: what a leader of former times writes late undoes nothing that was ordered since.
 *
 * A leader opens the breaker (a latch) or closes it (a reset), and removes a pause that has ended by itself: it decides
 * that, reads the ConfigMap, and writes it. People open and close the breaker, pause and resume, too. What a process
 * decided while it led, it writes whenever it may; the next one may lead by then.
 * ASSUMPTIONS
 *  1. The API server replaces the ConfigMap only if the version that the writer read is still there.
 *  2. Any process may take over at any moment (elections.pml says when it does), and crash at any moment.
 *  3. Dates come from the API server's clock; no two changes have the same date.
 *  4. A pause may end by itself at any moment.
 * BOUNDS  DATES: how many changes are decided, by leaders and by people.
 * PROPERTIES
 *  P1 A latch or a reset is stored only if it was decided after the last change that is stored.
 *  P2 A leader removes no pause but the one that has ended.
 */
#include "trace.h"

#define LATE_LATCH (MISTAKE == 1) /* a latch is written without a look at whether somebody reset the breaker since */
#define ANY_PAUSE (MISTAKE == 2) /* a pause that has ended is removed, though another one may have replaced it */

mtype = { takes_over, crashes, decides_to_open, decides_to_reset, decides_to_remove_pause, reads_state, writes_open,
          writes_reset, removes_pause, person_opens, person_resets, person_pauses, person_resumes };
mtype = { Opens, Resets, Removes };
typedef Process {
    bool leads;
    mtype wants; byte date;  /* what it decided last, and when (of a pause: its date), until that is stored */
    bool read                /* it has read the state that is stored now: a write would find the version it tests */
};
Process p[2];
bool is_open; byte changed;  /* what is stored: whether the breaker is open, and when that changed; */
byte paused;                 /* since when it says that evictions are paused, 0: they are not */
byte last_pause;             /* since when the last pause was, which a leader may still know */
byte date = 1;               /* today's */

#define i _pid
#define may_decide (p[i].leads && (!p[i].wants || TRACED) && date < DATES)
#define outdated (changed > p[i].date)
inline wants_nothing() { p[i].wants = 0; p[i].date = 0; p[i].read = 0 }
inline decide(what) { p[i].wants = what; p[i].date = date; date++ }
inline written() { p[0].read = 0; p[1].read = 0 }
inline store(opened, decided) { is_open = opened; changed = decided; written() }
inline pause(since) { paused = since; written() }

active [2] proctype process() {
    do
    MOVE(i, takes_over, !p[i].leads || TRACED) p[0].leads = 0; p[1].leads = 0; p[i].leads = 1 }
    MOVE(i, crashes, true) p[i].leads = 0; wants_nothing() }
    MOVE(i, decides_to_open, may_decide) decide(Opens) }
    MOVE(i, decides_to_reset, may_decide) decide(Resets) }
    MOVE(i, decides_to_remove_pause, may_decide && last_pause) p[i].wants = Removes; p[i].date = last_pause }
    HIDDEN(i, reads_state, p[i].wants && !p[i].read) p[i].read = 1;
        if :: p[i].wants == Opens && (is_open || outdated && !LATE_LATCH) -> wants_nothing()
           :: p[i].wants == Resets && (!is_open || outdated) -> wants_nothing()
           :: p[i].wants == Removes && (!paused || paused != p[i].date && !ANY_PAUSE) -> wants_nothing()
           :: else fi }
    MOVE(i, writes_open, p[i].wants == Opens && p[i].read) holds(!outdated) /* P1 */;
        store(1, p[i].date); wants_nothing() }
    MOVE(i, writes_reset, p[i].wants == Resets && p[i].read) holds(!outdated) /* P1 */;
        store(0, p[i].date); wants_nothing() }
    MOVE(i, removes_pause, p[i].wants == Removes && p[i].read) holds(paused == p[i].date) /* P2 */;
        pause(0); wants_nothing() }
    od
}

active proctype people() {
    BEGIN
    MOVE(0, person_opens, date < DATES) store(1, date); date++ }
    MOVE(0, person_resets, date < DATES) store(0, date); date++ }
    MOVE(0, person_pauses, date < DATES) pause(date); last_pause = date; date++ }
    MOVE(0, person_resumes, paused) pause(0) }
    END
}
