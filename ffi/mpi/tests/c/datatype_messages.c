/* Messages of strided data between two processes: short to long, small blocks to large, from and to strided and contiguous
 * memory; columns of matrices in collectives. Run with 2 processes; what does not fit is counted. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BOTH_STRIDED, FROM_FLAT, TO_FLAT, WAYS };

static unsigned char byte_at(long i)
{
    return (unsigned char)(i * 31 + i / 977);
}

/* One message of `count` blocks of `block` bytes; answers how many bytes are wrong at the receiver. */
static long message(int rank, int block, int count, int way)
{
    long stride = block + block / 2 + 4, span = stride * count, wrong = 0;
    unsigned char *strided = malloc((size_t)span), *flat = malloc((size_t)block * (size_t)count);
    MPI_Datatype type;
    MPI_Type_create_hvector(count, block, stride, MPI_BYTE, &type);
    MPI_Type_commit(&type);
    if (rank == 0) {
        for (long i = 0; i < span; i++)
            strided[i] = byte_at(i);
        for (long i = 0; i < count; i++)
            memcpy(flat + i * block, strided + i * stride, (size_t)block);
        if (way == FROM_FLAT)
            MPI_Send(flat, block * count, MPI_BYTE, 1, way, MPI_COMM_WORLD);
        else
            MPI_Send(strided, 1, type, 1, way, MPI_COMM_WORLD);
    } else if (rank == 1) {
        MPI_Status status;
        int n;
        memset(strided, 0xee, (size_t)span);
        if (way == TO_FLAT) {
            MPI_Recv(flat, block * count, MPI_BYTE, 0, way, MPI_COMM_WORLD, &status);
            for (long i = 0; i < count; i++)
                memcpy(strided + i * stride, flat + i * block, (size_t)block);
        } else {
            MPI_Recv(strided, 1, type, 0, way, MPI_COMM_WORLD, &status);
        }
        MPI_Get_count(&status, way == TO_FLAT ? MPI_BYTE : type, &n);
        wrong += n != (way == TO_FLAT ? block * count : 1);
        for (long i = 0; i < span; i++)
            wrong += strided[i] != (i % stride < block ? byte_at(i) : 0xee);
    }
    MPI_Type_free(&type);
    free(strided);
    free(flat);
    return wrong;
}

/* Columns of a matrix, gathered as rows and broadcast as columns; answers how many numbers are wrong. */
static int columns(int rank)
{
    enum { ROWS = 20, COLUMNS = 30 };
    static int matrix[ROWS][COLUMNS], all[2][COLUMNS][ROWS], copy[ROWS][COLUMNS];
    int wrong = 0;
    MPI_Datatype column, next;
    MPI_Type_vector(ROWS, 1, COLUMNS, MPI_INT, &column);
    MPI_Type_create_resized(column, 0, sizeof(int), &next);
    MPI_Type_commit(&next);
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLUMNS; j++) {
            matrix[i][j] = rank * 1000000 + i * 1000 + j;
            copy[i][j] = rank == 0 ? i * 1000 + j : -1;
        }
    MPI_Allgather(matrix, COLUMNS, next, all, ROWS * COLUMNS, MPI_INT, MPI_COMM_WORLD);
    MPI_Bcast(copy, COLUMNS, next, 0, MPI_COMM_WORLD);
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLUMNS; j++) {
            for (int from = 0; from < 2; from++)
                wrong += all[from][j][i] != from * 1000000 + i * 1000 + j;
            wrong += copy[i][j] != i * 1000 + j;
        }
    MPI_Type_free(&column);
    MPI_Type_free(&next);
    return wrong;
}

int main(int argc, char **argv)
{
    int rank, blocks[] = {4, 8, 12, 100, 1000, 5000, 70000}, lengths[] = {64, 1000, 5000, 70000, 1 << 20, 8 << 20};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int b = 0; b < 7; b++)
        for (int l = 0; l < 6; l++)
            for (int way = 0; way < WAYS; way++) {
                long wrong = message(rank, blocks[b], lengths[l] / blocks[b] + 1, way);
                if (rank == 1)
                    printf("blocks of %d, %d bytes, way %d: %ld wrong\n", blocks[b], lengths[l], way, wrong);
            }
    int wrong = columns(rank), sum;
    MPI_Reduce(&wrong, &sum, 1, MPI_INT, MPI_SUM, 1, MPI_COMM_WORLD);
    if (rank == 1)
        printf("columns: %d wrong\n", sum);
    MPI_Finalize();
    return 0;
}
