/* Derived datatypes (MPI 5.0, chapter 5): each call at least once. Run with 1 process; prints what it sees, which every
 * library must see alike. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int class_of(int code)
{
    int class = -1;
    MPI_Error_class(code, &class);
    return class;
}

/* Sizes and bounds, by all calls that tell them. */
static void show(const char *what, MPI_Datatype type)
{
    int size;
    MPI_Count csize, xsize, clb, cext, xlb, xext, ctlb, ctext, xtlb, xtext;
    MPI_Aint lb, extent, true_lb, true_extent;
    MPI_Type_size(type, &size);
    MPI_Type_size_c(type, &csize);
    MPI_Type_size_x(type, &xsize);
    MPI_Type_get_extent(type, &lb, &extent);
    MPI_Type_get_extent_c(type, &clb, &cext);
    MPI_Type_get_extent_x(type, &xlb, &xext);
    MPI_Type_get_true_extent(type, &true_lb, &true_extent);
    MPI_Type_get_true_extent_c(type, &ctlb, &ctext);
    MPI_Type_get_true_extent_x(type, &xtlb, &xtext);
    int same = csize == xsize && clb == lb && xlb == lb && cext == extent && xext == extent && ctlb == true_lb
        && xtlb == true_lb && ctext == true_extent && xtext == true_extent;
    printf("%s: size %d %lld lb %ld extent %ld true %ld %ld %s\n", what, size, (long long)csize, (long)lb,
           (long)extent, (long)true_lb, (long)true_extent, same ? "alike" : "NOT ALIKE");
}

/* How it was made, by both calls. */
static void contents(const char *what, MPI_Datatype type)
{
    MPI_Count ni, na, nl, nd;
    int combiner;
    MPI_Type_get_envelope_c(type, &ni, &na, &nl, &nd, &combiner);
    printf("%s: combiner %d, %lld %lld %lld %lld:", what, combiner, (long long)ni, (long long)na, (long long)nl,
           (long long)nd);
    int integers[64];
    MPI_Aint addresses[64];
    MPI_Count large[64];
    MPI_Datatype types[64];
    MPI_Type_get_contents_c(type, ni, na, nl, nd, integers, addresses, large, types);
    if (nl == 0) {
        int i, a, d, c;
        MPI_Type_get_envelope(type, &i, &a, &d, &c);
        if (i != ni || a != na || d != nd || c != combiner)
            printf(" NOT ALIKE");
        MPI_Type_get_contents(type, i, a, d, integers, addresses, types);
    }
    for (int i = 0; i < ni; i++)
        printf(" %d", integers[i]);
    printf(" /");
    for (int i = 0; i < na; i++)
        printf(" %ld", (long)addresses[i]);
    printf(" /");
    for (int i = 0; i < nl; i++)
        printf(" %lld", (long long)large[i]);
    printf(" /");
    for (int i = 0; i < nd; i++) {
        int inner, size, a, b, c;
        MPI_Type_get_envelope(types[i], &a, &b, &c, &inner);
        MPI_Type_size(types[i], &size);
        printf(" (%d, %d bytes)", inner, size);
        if (inner != MPI_COMBINER_NAMED)
            MPI_Type_free(&types[i]);
    }
    printf("\n");
}

/* Packs `count` of a type from numbered bytes, prints a checksum, unpacks into zeros and prints where bytes came. */
static void round_trip(const char *what, MPI_Datatype type, int count, int origin)
{
    enum { N = 4096 };
    unsigned char *from = malloc(N), *to = calloc(N, 1), packed[N];
    for (int i = 0; i < N; i++)
        from[i] = (unsigned char)(i * 7 + i / 256 + 1);
    int position = 0, size = -1, back = 0;
    MPI_Pack_size(count, type, MPI_COMM_SELF, &size);
    MPI_Pack(from + origin, count, type, packed, N, &position, MPI_COMM_SELF);
    unsigned long sum = 5381;
    for (int i = 0; i < position; i++)
        sum = sum * 33 + packed[i];
    MPI_Unpack(packed, position, &back, to + origin, count, type, MPI_COMM_SELF);
    unsigned long where = 5381;
    int bytes = 0, wrong = 0;
    for (int i = 0; i < N; i++)
        if (to[i]) {
            where = where * 33 + (unsigned long)i;
            bytes++;
            wrong += to[i] != from[i];
        }
    printf("%s x %d: fits %d, packed %d, sum %lx, unpacked %d, %d bytes at %lx, %d wrong\n", what, count,
           size >= position, position, sum, back, bytes, where, wrong);

    /* The same by message to itself, of type to type, and to bytes. */
    MPI_Request request;
    MPI_Status status;
    unsigned char *again = calloc(N, 1);
    MPI_Irecv(again + origin, count, type, 0, 1, MPI_COMM_SELF, &request);
    MPI_Send(from + origin, count, type, 0, 1, MPI_COMM_SELF);
    MPI_Wait(&request, &status);
    int n, elements;
    MPI_Count cn, celements, xelements;
    MPI_Get_count(&status, type, &n);
    MPI_Get_count_c(&status, type, &cn);
    MPI_Get_elements(&status, type, &elements);
    MPI_Get_elements_c(&status, type, &celements);
    MPI_Get_elements_x(&status, type, &xelements);
    printf("  message: %s, count %d %lld, elements %d %lld %lld\n", memcmp(to, again, N) ? "DIFFERENT" : "same", n,
           (long long)cn, elements, (long long)celements, (long long)xelements);
    MPI_Irecv(packed, N, MPI_BYTE, 0, 2, MPI_COMM_SELF, &request);
    MPI_Send(from + origin, count, type, 0, 2, MPI_COMM_SELF);
    MPI_Wait(&request, &status);
    MPI_Get_count(&status, MPI_BYTE, &n);
    sum = 5381;
    for (int i = 0; i < n; i++)
        sum = sum * 33 + packed[i];
    printf("  as bytes: %d, sum %lx\n", n, sum);
    free(from);
    free(to);
    free(again);
}

static void all(const char *what, MPI_Datatype type, int origin)
{
    MPI_Type_commit(&type);
    show(what, type);
    contents(what, type);
    round_trip(what, type, 1, origin);
    round_trip(what, type, 3, origin);
    MPI_Type_free(&type);
    if (type != MPI_DATATYPE_NULL)
        printf("%s: NOT NULL after free\n", what);
}

static void constructors(void)
{
    MPI_Datatype type, inner;
    int lengths[] = {2, 0, 1, 3}, places[] = {0, 9, 4, 6};
    MPI_Aint bytes[] = {8, 100, 40, 60};
    MPI_Count clengths[] = {2, 0, 1, 3}, cplaces[] = {0, 9, 4, 6}, cbytes[] = {8, 100, 40, 60};
    MPI_Datatype types[] = {MPI_DOUBLE, MPI_CHAR, MPI_SHORT, MPI_INT};

    MPI_Type_contiguous(5, MPI_INT, &type);
    all("contiguous", type, 0);
    MPI_Type_contiguous_c(5, MPI_INT, &type);
    all("contiguous_c", type, 0);
    MPI_Type_vector(4, 2, 5, MPI_DOUBLE, &type);
    all("vector", type, 0);
    MPI_Type_vector_c(4, 2, -5, MPI_DOUBLE, &type);
    all("vector_c", type, 2048);
    MPI_Type_create_hvector(3, 2, 24, MPI_FLOAT, &type);
    all("hvector", type, 0);
    MPI_Type_create_hvector_c(3, 2, 24, MPI_FLOAT, &type);
    all("hvector_c", type, 0);
    MPI_Type_indexed(4, lengths, places, MPI_INT, &type);
    all("indexed", type, 0);
    MPI_Type_indexed_c(4, clengths, cplaces, MPI_INT, &type);
    all("indexed_c", type, 0);
    MPI_Type_create_hindexed(4, lengths, bytes, MPI_INT, &type);
    all("hindexed", type, 0);
    MPI_Type_create_hindexed_c(4, clengths, cbytes, MPI_INT, &type);
    all("hindexed_c", type, 0);
    MPI_Type_create_indexed_block(4, 2, places, MPI_SHORT, &type);
    all("indexed_block", type, 0);
    MPI_Type_create_indexed_block_c(4, 2, cplaces, MPI_SHORT, &type);
    all("indexed_block_c", type, 0);
    MPI_Type_create_hindexed_block(4, 2, bytes, MPI_SHORT, &type);
    all("hindexed_block", type, 0);
    MPI_Type_create_hindexed_block_c(4, 2, cbytes, MPI_SHORT, &type);
    all("hindexed_block_c", type, 0);
    MPI_Type_create_struct(4, lengths, bytes, types, &type);
    all("struct", type, 0);
    MPI_Type_create_struct_c(4, clengths, cbytes, types, &type);
    all("struct_c", type, 0);
    MPI_Type_create_resized(MPI_INT, -4, 16, &type);
    all("resized", type, 64);
    MPI_Type_create_resized_c(MPI_INT, -4, 16, &type);
    all("resized_c", type, 64);

    /* Nested: a vector of structs with gaps, of which the extent is set; duplicated. */
    MPI_Type_create_struct(4, lengths, bytes, types, &inner);
    MPI_Type_create_resized(inner, 0, 128, &type);
    MPI_Type_free(&inner);
    MPI_Type_vector(2, 1, 2, type, &inner);
    MPI_Type_free(&type);
    MPI_Type_dup(inner, &type);
    MPI_Type_free(&inner);
    all("nested", type, 0);

    MPI_Type_contiguous(0, MPI_INT, &type);
    all("empty", type, 0);
    MPI_Type_contiguous(2, MPI_DOUBLE_INT, &type);
    all("pairs", type, 0);
}

static void arrays(void)
{
    MPI_Datatype type;
    char what[64];
    for (int order = MPI_ORDER_C; order <= MPI_ORDER_FORTRAN; order += MPI_ORDER_FORTRAN - MPI_ORDER_C) {
        int sizes[] = {4, 5, 3}, subsizes[] = {2, 3, 1}, starts[] = {1, 0, 2};
        MPI_Count csizes[] = {4, 5, 3}, csubsizes[] = {2, 3, 1}, cstarts[] = {1, 0, 2};
        snprintf(what, sizeof what, "subarray, order %d", order);
        MPI_Type_create_subarray(3, sizes, subsizes, starts, order, MPI_INT, &type);
        all(what, type, 0);
        MPI_Type_create_subarray_c(3, csizes, csubsizes, cstarts, order, MPI_INT, &type);
        all(what, type, 0);

        int gsizes[] = {7, 5, 4}, grid[] = {2, 3, 1};
        MPI_Count cgsizes[] = {7, 5, 4};
        int distribs[] = {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_NONE};
        int defaults[] = {MPI_DISTRIBUTE_DFLT_DARG, MPI_DISTRIBUTE_DFLT_DARG, MPI_DISTRIBUTE_DFLT_DARG};
        int other[] = {MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_NONE};
        int given[] = {2, 3, MPI_DISTRIBUTE_DFLT_DARG};
        for (int rank = 0; rank < 6; rank++) {
            snprintf(what, sizeof what, "darray, order %d, rank %d", order, rank);
            MPI_Type_create_darray(6, rank, 3, gsizes, distribs, defaults, grid, order, MPI_SHORT, &type);
            all(what, type, 0);
            MPI_Type_create_darray_c(6, rank, 3, cgsizes, other, given, grid, order, MPI_SHORT, &type);
            all(what, type, 0);
        }
    }
}

static void names(void)
{
    char name[MPI_MAX_OBJECT_NAME];
    int len;
    MPI_Datatype type, known[] = {MPI_INT, MPI_DOUBLE_INT, MPI_C_BOOL, MPI_LONG_LONG, MPI_AINT, MPI_INTEGER, MPI_UINT64_T};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        MPI_Type_get_name(known[i], name, &len);
        printf("name %s %d\n", name, len);
    }
    MPI_Type_contiguous(2, MPI_INT, &type);
    MPI_Type_get_name(type, name, &len);
    printf("no name: '%s' %d\n", name, len);
    MPI_Type_set_name(type, "two of them");
    MPI_Type_get_name(type, name, &len);
    printf("name: '%s' %d\n", name, len);
    MPI_Type_free(&type);
}

static int copies, deletions;

static int copy_one(MPI_Datatype type, int key, void *extra, void *value, void *copy, int *flag)
{
    (void)type, (void)key;
    copies++;
    *(void **)copy = (char *)value + (long)extra;
    *flag = 1;
    return MPI_SUCCESS;
}

static int delete_one(MPI_Datatype type, int key, void *value, void *extra)
{
    (void)type, (void)key, (void)value, (void)extra;
    deletions++;
    return MPI_SUCCESS;
}

static void attributes(void)
{
    MPI_Datatype type, twin;
    int key, same, flag;
    static char cells[8];
    void *value = NULL;
    MPI_Type_create_keyval(copy_one, delete_one, &key, (void *)2);
    MPI_Type_create_keyval(MPI_TYPE_DUP_FN, MPI_TYPE_NULL_DELETE_FN, &same, NULL);
    MPI_Type_contiguous(2, MPI_INT, &type);
    MPI_Type_set_attr(type, key, &cells[1]);
    MPI_Type_set_attr(type, same, &cells[7]);
    MPI_Type_dup(type, &twin);
    MPI_Type_get_attr(twin, key, &value, &flag);
    printf("attributes: %d, %ld", flag, (long)((char *)value - cells));
    MPI_Type_get_attr(twin, same, &value, &flag);
    printf(", %d, %ld", flag, (long)((char *)value - cells));
    MPI_Type_delete_attr(type, key);
    MPI_Type_get_attr(type, key, &value, &flag);
    printf(", %d", flag);
    MPI_Type_free(&twin);
    MPI_Type_free(&type);
    MPI_Type_free_keyval(&key);
    MPI_Type_free_keyval(&same);
    printf(", %d copies, %d deletions, %d\n", copies, deletions, key == MPI_KEYVAL_INVALID);
}

static void external(void)
{
    /* Of doubles only: the external32 of structs is checked in Rust, against a list (not all libraries have it). */
    double values[5] = {1.5, -2, 3.25, 4, 1e300}, back[5] = {0};
    MPI_Aint base, third, size, position = 0;
    MPI_Count csize, cposition = 0;
    MPI_Datatype type;
    MPI_Get_address(&values[0], &base);
    MPI_Get_address(&values[2], &third);
    printf("addresses %ld, sum %ld\n", (long)MPI_Aint_diff(third, base),
           (long)MPI_Aint_diff(MPI_Aint_add(base, 100), base));
    MPI_Type_vector(3, 1, 2, MPI_DOUBLE, &type);
    MPI_Type_commit(&type);
    unsigned char packed[64], cpacked[64];
    MPI_Pack_external_size("external32", 2, type, &size);
    MPI_Pack_external_size_c("external32", 2, type, &csize);
    MPI_Pack_external("external32", values, 1, type, packed, sizeof packed, &position);
    MPI_Pack_external_c("external32", values, 1, type, cpacked, sizeof cpacked, &cposition);
    printf("external32 %ld %lld, %ld %lld %s:", (long)size, (long long)csize, (long)position, (long long)cposition,
           memcmp(packed, cpacked, (size_t)position) ? "DIFFERENT" : "same");
    for (int i = 0; i < position; i++)
        printf(" %02x", packed[i]);
    printf("\n");
    position = 0;
    MPI_Unpack_external("external32", packed, sizeof packed, &position, back, 1, type);
    printf("back %g %g %g %g %g at %ld\n", back[0], back[1], back[2], back[3], back[4], (long)position);
    memset(back, 0, sizeof back);
    cposition = 0;
    MPI_Unpack_external_c("external32", cpacked, sizeof cpacked, &cposition, back, 1, type);
    printf("back %g %g %g %g %g at %lld\n", back[0], back[1], back[2], back[3], back[4], (long long)cposition);
    MPI_Type_free(&type);

    /* Absolute addresses. */
    int a = 17;
    double b = 2.25;
    int ones[] = {1, 1}, got_a = 0;
    double got_b = 0;
    MPI_Aint at[2], got_at[2];
    MPI_Datatype both[] = {MPI_INT, MPI_DOUBLE}, from, to;
    MPI_Get_address(&a, &at[0]);
    MPI_Get_address(&b, &at[1]);
    MPI_Get_address(&got_a, &got_at[0]);
    MPI_Get_address(&got_b, &got_at[1]);
    MPI_Type_create_struct(2, ones, at, both, &from);
    MPI_Type_create_struct(2, ones, got_at, both, &to);
    MPI_Type_commit(&from);
    MPI_Type_commit(&to);
    MPI_Sendrecv(MPI_BOTTOM, 1, from, 0, 5, MPI_BOTTOM, 1, to, 0, 5, MPI_COMM_SELF, MPI_STATUS_IGNORE);
    printf("from bottom %d %g\n", got_a, got_b);
    MPI_Type_free(&from);
    MPI_Type_free(&to);

    MPI_Count cpos = 0, need;
    MPI_Pack_size_c(3, MPI_INT, MPI_COMM_SELF, &need);
    int three[] = {1, 2, 3}, got[3] = {0};
    MPI_Pack_c(three, 3, MPI_INT, packed, sizeof packed, &cpos, MPI_COMM_SELF);
    printf("pack_c %lld %lld", (long long)need, (long long)cpos);
    cpos = 0;
    MPI_Unpack_c(packed, sizeof packed, &cpos, got, 3, MPI_INT, MPI_COMM_SELF);
    printf(" %lld: %d %d %d\n", (long long)cpos, got[0], got[1], got[2]);
}

static void counting(void)
{
    MPI_Status status;
    MPI_Datatype type;
    int n;
    MPI_Count cn, xn;
    memset(&status, 0, sizeof status);
    MPI_Type_contiguous(3, MPI_INT, &type);
    MPI_Type_commit(&type);
    MPI_Status_set_elements(&status, type, 7);
    MPI_Get_elements(&status, type, &n);
    printf("set 7, elements %d", n);
    MPI_Get_count(&status, type, &n);
    printf(", count %d", n == MPI_UNDEFINED ? -1 : n);
    MPI_Get_count(&status, MPI_INT, &n);
    printf(", integers %d\n", n);
    MPI_Status_set_elements_c(&status, MPI_INT, (MPI_Count)6 << 32);
    MPI_Get_elements_c(&status, type, &cn);
    MPI_Get_elements_x(&status, type, &xn);
    MPI_Get_elements(&status, type, &n);
    printf("many: %lld %lld %d", (long long)cn, (long long)xn, n == MPI_UNDEFINED);
    MPI_Status_set_elements_x(&status, MPI_INT, 9);
    MPI_Get_count_c(&status, type, &cn);
    printf(", then %lld\n", (long long)cn);
    MPI_Status_set_elements(&status, MPI_BYTE, 5);
    MPI_Get_count(&status, MPI_INT, &n);
    printf("5 bytes: %d", n == MPI_UNDEFINED);
    MPI_Get_elements(&status, MPI_BYTE, &n);
    printf(" %d\n", n);
    MPI_Type_free(&type);

    MPI_Type_contiguous(0x7fffffff, MPI_LONG, &type);
    MPI_Type_size(type, &n);
    MPI_Type_size_c(type, &cn);
    printf("too large for an int: %d, %lld\n", n == MPI_UNDEFINED, (long long)cn);
    MPI_Type_free(&type);
}

static void kinds(void)
{
    MPI_Datatype a, b;
    int reals[][2] = {{6, 37}, {6, MPI_UNDEFINED}, {7, MPI_UNDEFINED}, {15, 307}, {16, 1}, {MPI_UNDEFINED, 38}};
    int size, ni, na, nd, combiner, integers[2];
    for (int i = 0; i < 6; i++) {
        MPI_Type_create_f90_real(reals[i][0], reals[i][1], &a);
        MPI_Type_create_f90_real(reals[i][0], reals[i][1], &b);
        MPI_Type_size(a, &size);
        MPI_Type_get_envelope(a, &ni, &na, &nd, &combiner);
        MPI_Type_get_contents(a, ni, na, nd, integers, NULL, NULL);
        printf("real %d %d: %d bytes, same %d, combiner %d, %d %d %d, %d %d\n", reals[i][0], reals[i][1], size, a == b,
               combiner, ni, na, nd, integers[0], integers[1]);
        MPI_Type_create_f90_complex(reals[i][0], reals[i][1], &a);
        MPI_Type_size(a, &size);
        MPI_Type_get_envelope(a, &ni, &na, &nd, &combiner);
        printf("complex: %d bytes, combiner %d\n", size, combiner);
    }
    for (int r = 0; r < 39; r += 4) {
        MPI_Type_create_f90_integer(r, &a);
        MPI_Type_size(a, &size);
        MPI_Type_get_envelope(a, &ni, &na, &nd, &combiner);
        printf("integer %d: %d bytes, combiner %d\n", r, size, combiner);
    }
    int classes[] = {MPI_TYPECLASS_INTEGER, MPI_TYPECLASS_REAL, MPI_TYPECLASS_COMPLEX};
    for (int c = 0; c < 3; c++)
        for (size = 1; size <= 32; size *= 2) {
            char name[MPI_MAX_OBJECT_NAME] = "none";
            int len, code = MPI_Type_match_size(classes[c], size, &a);
            if (code == MPI_SUCCESS)
                MPI_Type_get_name(a, name, &len);
            printf("class %d, %d bytes: %s %d\n", classes[c], size, name, class_of(code));
        }
    MPI_Datatype values[] = {MPI_FLOAT, MPI_DOUBLE, MPI_LONG, MPI_INT, MPI_SHORT, MPI_LONG_DOUBLE, MPI_CHAR};
    for (int i = 0; i < 7; i++) {
        char name[MPI_MAX_OBJECT_NAME] = "none";
        MPI_Type_get_value_index(values[i], MPI_INT, &a);
        if (a != MPI_DATATYPE_NULL)
            MPI_Type_get_name(a, name, &ni);
        printf("value and index: %s\n", name);
    }
}

static void errors(void)
{
    MPI_Datatype type = MPI_DATATYPE_NULL;
    int value = 0, four = 4, nothing = 0, ni, na, nd, combiner;
    printf("errors: count %d", class_of(MPI_Type_contiguous(-1, MPI_INT, &type)) == MPI_ERR_COUNT);
    printf(" type %d", class_of(MPI_Type_contiguous(1, MPI_DATATYPE_NULL, &type)) == MPI_ERR_TYPE);
    printf(" order %d", class_of(MPI_Type_create_subarray(1, &four, &four, &nothing, 77, MPI_INT, &type)) == MPI_ERR_ARG);
    type = MPI_INT;
    printf(" free %d", class_of(MPI_Type_free(&type)) == MPI_ERR_TYPE);
    type = MPI_DATATYPE_NULL;
    printf(" null %d", class_of(MPI_Type_free(&type)) == MPI_ERR_TYPE);
    printf(" commit %d", class_of(MPI_Type_commit(&type)) == MPI_ERR_TYPE);
    MPI_Type_contiguous(1, MPI_INT, &type);
    printf(" uncommitted %d", class_of(MPI_Send(&value, 1, type, MPI_PROC_NULL, 0, MPI_COMM_SELF)) == MPI_ERR_TYPE);
    MPI_Type_free(&type);
    MPI_Type_contiguous_c(1, MPI_INT, &type);
    printf(" envelope %d\n", class_of(MPI_Type_get_envelope(type, &ni, &na, &nd, &combiner)) == MPI_ERR_TYPE);
    MPI_Type_free(&type);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    constructors();
    arrays();
    names();
    attributes();
    external();
    counting();
    kinds();
    errors();
    MPI_Finalize();
    return 0;
}
