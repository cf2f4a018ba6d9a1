/* What all models share: how a move is seen, and how a mistake is put in.
 *
 * Without TRACE, Spin visits all states; a counterexample, or a walk, prints its moves. With TRACE, a model accepts a
 * trace instead: it reads moves and whose they are from the file that TRACE names, and makes them in their order, with
 * hidden moves in between. The bounds of a model, and their values, are in bounds.py.
 */
#ifndef MISTAKE
#define MISTAKE 0            /* which mistake is put in, by -DMISTAKE=<its number>; 0: none */
#endif
#define each(k, n, ...) k = 0; do :: k < n -> __VA_ARGS__; k++ :: else -> break od; k = 0
#ifndef TRACE
#define TRACED 0
#define MOVE(i, move, guard) :: d_step { (guard) -> printf("@ %e %d\n", move, i);
#define HIDDEN MOVE
#define holds(property) assert(property)
#define BEGIN do
#define END od
#else
#define TRACED 1
#define MOVE(i, move, guard) :: d_step { (guard) && !violated && expected(move, i) -> at++;
#define HIDDEN(i, move, guard) :: d_step { (guard) && !violated ->
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
        for (length = 0; fscanf(file, "%d %d", &move, &of) == 2; length++) { \
            moves[length] = move; whose[length] = of; } \
        fclose(file); }; \
    do :: d_step { at == length && !violated -> c_code { printf("accepted %d moves\n", length); exit(0); } } \
       :: d_step { c_expr { now.at > furthest || (now.at == furthest && now.violated < broken) } -> \
                   c_code { furthest = now.at; broken = now.violated; \
                            printf("furthest %d violated %d\n", furthest, broken); } }
#define END od
#endif
