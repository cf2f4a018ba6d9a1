/* What all models share: how a move is seen, and how a mistake is put in.
 *
 * Without TRACE, Spin visits all states; a counterexample, or a walk, prints its moves. With TRACE, a model accepts a
 * trace instead: it reads moves and whose they are from the file that TRACE names, and makes them in their order, with
 * hidden moves in between. Each model defines hidden(move).
 */
#ifndef MISTAKE
#define MISTAKE 0            /* which mistake is put in, by -DMISTAKE=<its number>; 0: none */
#endif
#define each(k, n, ...) k = 0; do :: k < n -> __VA_ARGS__; k++ :: else -> break od; k = 0
#define MOVE(i, move, guard) :: d_step { (guard) && seen(move, i) -> see(move, i);
#ifndef TRACE
#define TRACED 0
#define seen(move, i) true
#define see(move, i) printf("@ %e %d\n", move, i)
#define holds(property) assert(property)
#define BEGIN skip;
#define END
#else
#define TRACED 1
#define seen(move, i) (!violated && (hidden(move) || expected(move, i)))
#define see(move, i) if :: hidden(move) -> skip :: else -> at++ fi
#define holds(property) violated = violated || !(property)
hidden byte moves[20000];
hidden byte whose[20000];
hidden short length;
short at;
bool violated;

c_decl { static int furthest = -1, broken; }

#define expected(what, i) (at < length && moves[at] == what && whose[at] == (i))
#define BEGIN c_code { \
        FILE *file = fopen(getenv("TRACE"), "r"); int move, of; \
        for (length = 0; fscanf(file, "%d %d", &move, &of) == 2; length++) { moves[length] = move; whose[length] = of; } \
        fclose(file); };
#define END \
    :: d_step { at == length && !violated -> c_code { printf("accepted %d moves\n", length); exit(0); } } \
    :: d_step { c_expr { now.at > furthest || (now.at == furthest && now.violated < broken) } -> \
                c_code { furthest = now.at; broken = now.violated; printf("furthest %d violated %d\n", furthest, broken); } }
#endif
