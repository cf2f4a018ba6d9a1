/* Lets a model accept a trace: reads the moves and whose they are from the file that TRACE names, when it begins. */
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
