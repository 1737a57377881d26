/*
 * What this library has beyond MPI 5.0: the types and constants of mpi-ext.h, whose prototypes stand in functions.h after
 * `extension:`. Visible from mpi.h too, so that programs that only include that find them.
 */

/*
 * Error classes of user-level failure mitigation (ULFM). The standard's classes end at 62 and those of the tool interface at
 * 1018; up to MPI_ERR_LASTCODE the rest is left to libraries. These stand at its upper end, where new classes of the
 * standard come last. MPI 5.0 does not have them yet: the forum has voted revoke, get_failed and ack_failed with these
 * three classes for the version after it, so those have their future names as well.
 */
#define MPIX_ERR_PROC_FAILED         0x3f01
#define MPIX_ERR_PROC_FAILED_PENDING 0x3f02
#define MPIX_ERR_REVOKED             0x3f03
#define MPI_ERR_PROC_FAILED          MPIX_ERR_PROC_FAILED
#define MPI_ERR_PROC_FAILED_PENDING  MPIX_ERR_PROC_FAILED_PENDING
#define MPI_ERR_REVOKED              MPIX_ERR_REVOKED

/* Predefined attribute of communicators: points to an int, 1 where failures of processes are tolerated. */
#define MPIX_FT                      0x0f01

/* The type of an error handler before MPI 2. */
typedef MPI_Comm_errhandler_function MPI_Handler_function;
