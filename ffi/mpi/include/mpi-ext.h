/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Made from ffi/mpi/abi by `ci/abi`; edit there. */
#ifndef MPI_EXT_H_IRONWEAVE
#define MPI_EXT_H_IRONWEAVE

#include "mpi.h"

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


#ifdef __cplusplus
extern "C" {
#endif

/* Fault tolerance (ULFM). */
int MPIX_Comm_ack_failed(MPI_Comm comm, int num_to_ack, int *num_acked);
int MPIX_Comm_agree(MPI_Comm comm, int *flag);
int MPIX_Comm_failure_ack(MPI_Comm comm);
int MPIX_Comm_failure_get_acked(MPI_Comm comm, MPI_Group *failedgrp);
int MPIX_Comm_get_failed(MPI_Comm comm, MPI_Group *failedgrp);
int MPIX_Comm_iagree(MPI_Comm comm, int *flag, MPI_Request *request);
int MPIX_Comm_is_revoked(MPI_Comm comm, int *flag);
int MPIX_Comm_ishrink(MPI_Comm comm, MPI_Comm *newcomm, MPI_Request *request);
int MPIX_Comm_revoke(MPI_Comm comm);
int MPIX_Comm_shrink(MPI_Comm comm, MPI_Comm *newcomm);
int MPI_Comm_ack_failed(MPI_Comm comm, int num_to_ack, int *num_acked);
int MPI_Comm_get_failed(MPI_Comm comm, MPI_Group *failedgrp);
int MPI_Comm_is_revoked(MPI_Comm comm, int *flag);
int MPI_Comm_revoke(MPI_Comm comm);

/* Removed by MPI 3.0, for old programs. */
int MPI_Address(void *location, MPI_Aint *address);
int MPI_Errhandler_create(MPI_Handler_function *handler_fn, MPI_Errhandler *errhandler);
int MPI_Errhandler_get(MPI_Comm comm, MPI_Errhandler *errhandler);
int MPI_Errhandler_set(MPI_Comm comm, MPI_Errhandler errhandler);
int MPI_Type_extent(MPI_Datatype datatype, MPI_Aint *extent);
int MPI_Type_hindexed(int count, int array_of_blocklengths[], MPI_Aint array_of_displacements[], MPI_Datatype oldtype, MPI_Datatype *newtype);
int MPI_Type_hvector(int count, int blocklength, MPI_Aint stride, MPI_Datatype oldtype, MPI_Datatype *newtype);
int MPI_Type_lb(MPI_Datatype datatype, MPI_Aint *displacement);
int MPI_Type_struct(int count, int array_of_blocklengths[], MPI_Aint array_of_displacements[], MPI_Datatype array_of_types[], MPI_Datatype *newtype);
int MPI_Type_ub(MPI_Datatype datatype, MPI_Aint *displacement);

/* Fault tolerance (ULFM), for profiling. */
int PMPIX_Comm_ack_failed(MPI_Comm comm, int num_to_ack, int *num_acked);
int PMPIX_Comm_agree(MPI_Comm comm, int *flag);
int PMPIX_Comm_failure_ack(MPI_Comm comm);
int PMPIX_Comm_failure_get_acked(MPI_Comm comm, MPI_Group *failedgrp);
int PMPIX_Comm_get_failed(MPI_Comm comm, MPI_Group *failedgrp);
int PMPIX_Comm_iagree(MPI_Comm comm, int *flag, MPI_Request *request);
int PMPIX_Comm_is_revoked(MPI_Comm comm, int *flag);
int PMPIX_Comm_ishrink(MPI_Comm comm, MPI_Comm *newcomm, MPI_Request *request);
int PMPIX_Comm_revoke(MPI_Comm comm);
int PMPIX_Comm_shrink(MPI_Comm comm, MPI_Comm *newcomm);
int PMPI_Comm_ack_failed(MPI_Comm comm, int num_to_ack, int *num_acked);
int PMPI_Comm_get_failed(MPI_Comm comm, MPI_Group *failedgrp);
int PMPI_Comm_is_revoked(MPI_Comm comm, int *flag);
int PMPI_Comm_revoke(MPI_Comm comm);

/* Removed by MPI 3.0, for old programs, for profiling. */
int PMPI_Address(void *location, MPI_Aint *address);
int PMPI_Errhandler_create(MPI_Handler_function *handler_fn, MPI_Errhandler *errhandler);
int PMPI_Errhandler_get(MPI_Comm comm, MPI_Errhandler *errhandler);
int PMPI_Errhandler_set(MPI_Comm comm, MPI_Errhandler errhandler);
int PMPI_Type_extent(MPI_Datatype datatype, MPI_Aint *extent);
int PMPI_Type_hindexed(int count, int array_of_blocklengths[], MPI_Aint array_of_displacements[], MPI_Datatype oldtype, MPI_Datatype *newtype);
int PMPI_Type_hvector(int count, int blocklength, MPI_Aint stride, MPI_Datatype oldtype, MPI_Datatype *newtype);
int PMPI_Type_lb(MPI_Datatype datatype, MPI_Aint *displacement);
int PMPI_Type_struct(int count, int array_of_blocklengths[], MPI_Aint array_of_displacements[], MPI_Datatype array_of_types[], MPI_Datatype *newtype);
int PMPI_Type_ub(MPI_Datatype datatype, MPI_Aint *displacement);

#ifdef __cplusplus
}
#endif

#endif
