//! The C side's types and constants: layouts and values of the MPI 5.0 ABI (standard chapter 20 and annex A). They are this
//! library's native values too: nothing is translated.
//!
//! Handles are words. Predefined ones are small constants; others come from the tables of [`crate::handle`].

#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals)]
#![allow(missing_docs)] // names and meanings are the standard's

use std::ffi::c_int;

/// An address or a difference of addresses.
pub type MPI_Aint = isize;
/// A position in a file.
pub type MPI_Offset = i64;
/// A count of anything.
pub type MPI_Count = i64;
/// A Fortran `INTEGER`.
pub type MPI_Fint = c_int;

/// What is known of a message, as C programs see it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct MPI_Status {
    pub MPI_SOURCE: c_int,
    pub MPI_TAG: c_int,
    pub MPI_ERROR: c_int,
    /// Ours: the length in bytes (two words), and whether it was cancelled.
    pub MPI_internal: [c_int; 5],
}

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident { $($constant:ident = $value:literal,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(transparent)]
        pub struct $name(pub usize);

        $(pub const $constant: $name = $name($value);)*
    )*};
}

handles! {
    /// Reduction operations.
    MPI_Op {
        MPI_OP_NULL = 0x20,
        MPI_SUM = 0x21,
        MPI_MIN = 0x22,
        MPI_MAX = 0x23,
        MPI_PROD = 0x24,
        MPI_BAND = 0x28,
        MPI_BOR = 0x29,
        MPI_BXOR = 0x2a,
        MPI_LAND = 0x30,
        MPI_LOR = 0x31,
        MPI_LXOR = 0x32,
        MPI_MINLOC = 0x38,
        MPI_MAXLOC = 0x39,
        MPI_REPLACE = 0x3c,
        MPI_NO_OP = 0x3d,
    }
    /// Communicators.
    MPI_Comm {
        MPI_COMM_NULL = 0x100,
        MPI_COMM_WORLD = 0x101,
        MPI_COMM_SELF = 0x102,
    }
    /// Groups.
    MPI_Group {
        MPI_GROUP_NULL = 0x108,
        MPI_GROUP_EMPTY = 0x109,
    }
    /// Windows.
    MPI_Win {
        MPI_WIN_NULL = 0x110,
    }
    /// Files.
    MPI_File {
        MPI_FILE_NULL = 0x118,
    }
    /// Sessions.
    MPI_Session {
        MPI_SESSION_NULL = 0x120,
    }
    /// Matched messages.
    MPI_Message {
        MPI_MESSAGE_NULL = 0x128,
        MPI_MESSAGE_NO_PROC = 0x129,
    }
    /// Info objects.
    MPI_Info {
        MPI_INFO_NULL = 0x130,
        MPI_INFO_ENV = 0x131,
    }
    /// Error handlers.
    MPI_Errhandler {
        MPI_ERRHANDLER_NULL = 0x140,
        MPI_ERRORS_ARE_FATAL = 0x141,
        MPI_ERRORS_ABORT = 0x142,
        MPI_ERRORS_RETURN = 0x143,
    }
    /// Requests.
    MPI_Request {
        MPI_REQUEST_NULL = 0x180,
    }
    /// Datatypes.
    MPI_Datatype {
        MPI_DATATYPE_NULL = 0x200,
        MPI_AINT = 0x201,
        MPI_COUNT = 0x202,
        MPI_OFFSET = 0x203,
        MPI_PACKED = 0x207,
        MPI_SHORT = 0x208,
        MPI_INT = 0x209,
        MPI_LONG = 0x20a,
        MPI_LONG_LONG = 0x20b,
        MPI_UNSIGNED_SHORT = 0x20c,
        MPI_UNSIGNED = 0x20d,
        MPI_UNSIGNED_LONG = 0x20e,
        MPI_UNSIGNED_LONG_LONG = 0x20f,
        MPI_FLOAT = 0x210,
        MPI_C_FLOAT_COMPLEX = 0x212,
        MPI_CXX_FLOAT_COMPLEX = 0x213,
        MPI_DOUBLE = 0x214,
        MPI_C_DOUBLE_COMPLEX = 0x216,
        MPI_CXX_DOUBLE_COMPLEX = 0x217,
        MPI_LOGICAL = 0x218,
        MPI_INTEGER = 0x219,
        MPI_REAL = 0x21a,
        MPI_COMPLEX = 0x21b,
        MPI_DOUBLE_PRECISION = 0x21c,
        MPI_DOUBLE_COMPLEX = 0x21d,
        MPI_CHARACTER = 0x21e,
        MPI_LONG_DOUBLE = 0x220,
        MPI_C_LONG_DOUBLE_COMPLEX = 0x224,
        MPI_CXX_LONG_DOUBLE_COMPLEX = 0x225,
        MPI_FLOAT_INT = 0x228,
        MPI_DOUBLE_INT = 0x229,
        MPI_LONG_INT = 0x22a,
        MPI_2INT = 0x22b,
        MPI_SHORT_INT = 0x22c,
        MPI_LONG_DOUBLE_INT = 0x22d,
        MPI_2REAL = 0x230,
        MPI_2DOUBLE_PRECISION = 0x231,
        MPI_2INTEGER = 0x232,
        MPI_C_BOOL = 0x238,
        MPI_CXX_BOOL = 0x239,
        MPI_WCHAR = 0x23c,
        MPI_INT8_T = 0x240,
        MPI_UINT8_T = 0x241,
        MPI_CHAR = 0x243,
        MPI_SIGNED_CHAR = 0x244,
        MPI_UNSIGNED_CHAR = 0x245,
        MPI_BYTE = 0x247,
        MPI_INT16_T = 0x248,
        MPI_UINT16_T = 0x249,
        MPI_INT32_T = 0x250,
        MPI_UINT32_T = 0x251,
        MPI_INT64_T = 0x258,
        MPI_UINT64_T = 0x259,
        MPI_LOGICAL1 = 0x2c0,
        MPI_INTEGER1 = 0x2c1,
        MPI_LOGICAL2 = 0x2c8,
        MPI_INTEGER2 = 0x2c9,
        MPI_REAL2 = 0x2ca,
        MPI_LOGICAL4 = 0x2d0,
        MPI_INTEGER4 = 0x2d1,
        MPI_REAL4 = 0x2d2,
        MPI_COMPLEX4 = 0x2d3,
        MPI_LOGICAL8 = 0x2d8,
        MPI_INTEGER8 = 0x2d9,
        MPI_REAL8 = 0x2da,
        MPI_COMPLEX8 = 0x2db,
        MPI_LOGICAL16 = 0x2e0,
        MPI_INTEGER16 = 0x2e1,
        MPI_REAL16 = 0x2e2,
        MPI_COMPLEX16 = 0x2e3,
        MPI_COMPLEX32 = 0x2eb,
    }
}

pub const MPI_LONG_LONG_INT: MPI_Datatype = MPI_LONG_LONG;
pub const MPI_C_COMPLEX: MPI_Datatype = MPI_C_FLOAT_COMPLEX;

pub const MPI_F_STATUS_SIZE: c_int = 8;
pub const MPI_F_SOURCE: c_int = 0;
pub const MPI_F_TAG: c_int = 1;
pub const MPI_F_ERROR: c_int = 2;
pub const MPI_SUCCESS: c_int = 0;
pub const MPI_ERR_BUFFER: c_int = 1;
pub const MPI_ERR_COUNT: c_int = 2;
pub const MPI_ERR_TYPE: c_int = 3;
pub const MPI_ERR_TAG: c_int = 4;
pub const MPI_ERR_COMM: c_int = 5;
pub const MPI_ERR_RANK: c_int = 6;
pub const MPI_ERR_REQUEST: c_int = 7;
pub const MPI_ERR_ROOT: c_int = 8;
pub const MPI_ERR_GROUP: c_int = 9;
pub const MPI_ERR_OP: c_int = 10;
pub const MPI_ERR_TOPOLOGY: c_int = 11;
pub const MPI_ERR_DIMS: c_int = 12;
pub const MPI_ERR_ARG: c_int = 13;
pub const MPI_ERR_UNKNOWN: c_int = 14;
pub const MPI_ERR_TRUNCATE: c_int = 15;
pub const MPI_ERR_OTHER: c_int = 16;
pub const MPI_ERR_INTERN: c_int = 17;
pub const MPI_ERR_PENDING: c_int = 18;
pub const MPI_ERR_IN_STATUS: c_int = 19;
pub const MPI_ERR_ACCESS: c_int = 20;
pub const MPI_ERR_AMODE: c_int = 21;
pub const MPI_ERR_ASSERT: c_int = 22;
pub const MPI_ERR_BAD_FILE: c_int = 23;
pub const MPI_ERR_BASE: c_int = 24;
pub const MPI_ERR_CONVERSION: c_int = 25;
pub const MPI_ERR_DISP: c_int = 26;
pub const MPI_ERR_DUP_DATAREP: c_int = 27;
pub const MPI_ERR_FILE_EXISTS: c_int = 28;
pub const MPI_ERR_FILE_IN_USE: c_int = 29;
pub const MPI_ERR_FILE: c_int = 30;
pub const MPI_ERR_INFO_KEY: c_int = 31;
pub const MPI_ERR_INFO_NOKEY: c_int = 32;
pub const MPI_ERR_INFO_VALUE: c_int = 33;
pub const MPI_ERR_INFO: c_int = 34;
pub const MPI_ERR_IO: c_int = 35;
pub const MPI_ERR_KEYVAL: c_int = 36;
pub const MPI_ERR_LOCKTYPE: c_int = 37;
pub const MPI_ERR_NAME: c_int = 38;
pub const MPI_ERR_NO_MEM: c_int = 39;
pub const MPI_ERR_NOT_SAME: c_int = 40;
pub const MPI_ERR_NO_SPACE: c_int = 41;
pub const MPI_ERR_NO_SUCH_FILE: c_int = 42;
pub const MPI_ERR_PORT: c_int = 43;
pub const MPI_ERR_QUOTA: c_int = 44;
pub const MPI_ERR_READ_ONLY: c_int = 45;
pub const MPI_ERR_RMA_ATTACH: c_int = 46;
pub const MPI_ERR_RMA_CONFLICT: c_int = 47;
pub const MPI_ERR_RMA_RANGE: c_int = 48;
pub const MPI_ERR_RMA_SHARED: c_int = 49;
pub const MPI_ERR_RMA_SYNC: c_int = 50;
pub const MPI_ERR_SERVICE: c_int = 51;
pub const MPI_ERR_SIZE: c_int = 52;
pub const MPI_ERR_SPAWN: c_int = 53;
pub const MPI_ERR_UNSUPPORTED_DATAREP: c_int = 54;
pub const MPI_ERR_UNSUPPORTED_OPERATION: c_int = 55;
pub const MPI_ERR_WIN: c_int = 56;
pub const MPI_ERR_RMA_FLAVOR: c_int = 57;
pub const MPI_ERR_PROC_ABORTED: c_int = 58;
pub const MPI_ERR_VALUE_TOO_LARGE: c_int = 59;
pub const MPI_ERR_SESSION: c_int = 60;
pub const MPI_ERR_ERRHANDLER: c_int = 61;
pub const MPI_ERR_ABI: c_int = 62;
pub const MPI_T_ERR_CANNOT_INIT: c_int = 1001;
pub const MPI_T_ERR_NOT_ACCESSIBLE: c_int = 1002;
pub const MPI_T_ERR_NOT_INITIALIZED: c_int = 1003;
pub const MPI_T_ERR_NOT_SUPPORTED: c_int = 1004;
pub const MPI_T_ERR_MEMORY: c_int = 1005;
pub const MPI_T_ERR_INVALID: c_int = 1006;
pub const MPI_T_ERR_INVALID_INDEX: c_int = 1007;
pub const MPI_T_ERR_INVALID_ITEM: c_int = 1008;
pub const MPI_T_ERR_INVALID_SESSION: c_int = 1009;
pub const MPI_T_ERR_INVALID_HANDLE: c_int = 1010;
pub const MPI_T_ERR_INVALID_NAME: c_int = 1011;
pub const MPI_T_ERR_OUT_OF_HANDLES: c_int = 1012;
pub const MPI_T_ERR_OUT_OF_SESSIONS: c_int = 1013;
pub const MPI_T_ERR_CVAR_SET_NOT_NOW: c_int = 1014;
pub const MPI_T_ERR_CVAR_SET_NEVER: c_int = 1015;
pub const MPI_T_ERR_PVAR_NO_WRITE: c_int = 1016;
pub const MPI_T_ERR_PVAR_NO_STARTSTOP: c_int = 1017;
pub const MPI_T_ERR_PVAR_NO_ATOMIC: c_int = 1018;
pub const MPI_ERR_LASTCODE: c_int = 0x3fff;
pub const MPI_MODE_APPEND: c_int = 1;
pub const MPI_MODE_CREATE: c_int = 2;
pub const MPI_MODE_DELETE_ON_CLOSE: c_int = 4;
pub const MPI_MODE_EXCL: c_int = 8;
pub const MPI_MODE_RDONLY: c_int = 16;
pub const MPI_MODE_RDWR: c_int = 32;
pub const MPI_MODE_SEQUENTIAL: c_int = 64;
pub const MPI_MODE_UNIQUE_OPEN: c_int = 128;
pub const MPI_MODE_WRONLY: c_int = 256;
pub const MPI_MODE_NOCHECK: c_int = 1024;
pub const MPI_MODE_NOPRECEDE: c_int = 2048;
pub const MPI_MODE_NOPUT: c_int = 4096;
pub const MPI_MODE_NOSTORE: c_int = 8192;
pub const MPI_MODE_NOSUCCEED: c_int = 16384;
pub const MPI_ANY_SOURCE: c_int = -1;
pub const MPI_ANY_TAG: c_int = -2;
pub const MPI_PROC_NULL: c_int = -3;
pub const MPI_ROOT: c_int = -4;
pub const MPI_UNDEFINED: c_int = -32766;
pub const MPI_THREAD_SINGLE: c_int = 0;
pub const MPI_THREAD_FUNNELED: c_int = 1024;
pub const MPI_THREAD_SERIALIZED: c_int = 2048;
pub const MPI_THREAD_MULTIPLE: c_int = 4096;
pub const MPI_ORDER_C: c_int = 0xC;
pub const MPI_ORDER_FORTRAN: c_int = 0xF;
pub const MPI_DISTRIBUTE_NONE: c_int = 16;
pub const MPI_DISTRIBUTE_BLOCK: c_int = 17;
pub const MPI_DISTRIBUTE_CYCLIC: c_int = 18;
pub const MPI_DISTRIBUTE_DFLT_DARG: c_int = 19;
pub const MPI_COMBINER_NAMED: c_int = 101;
pub const MPI_COMBINER_DUP: c_int = 102;
pub const MPI_COMBINER_CONTIGUOUS: c_int = 103;
pub const MPI_COMBINER_VECTOR: c_int = 104;
pub const MPI_COMBINER_HVECTOR: c_int = 105;
pub const MPI_COMBINER_INDEXED: c_int = 106;
pub const MPI_COMBINER_HINDEXED: c_int = 107;
pub const MPI_COMBINER_INDEXED_BLOCK: c_int = 108;
pub const MPI_COMBINER_HINDEXED_BLOCK: c_int = 109;
pub const MPI_COMBINER_STRUCT: c_int = 110;
pub const MPI_COMBINER_SUBARRAY: c_int = 111;
pub const MPI_COMBINER_DARRAY: c_int = 112;
pub const MPI_COMBINER_F90_REAL: c_int = 113;
pub const MPI_COMBINER_F90_COMPLEX: c_int = 114;
pub const MPI_COMBINER_F90_INTEGER: c_int = 115;
pub const MPI_COMBINER_RESIZED: c_int = 116;
pub const MPI_COMBINER_VALUE_INDEX: c_int = 117;
pub const MPI_TYPECLASS_INTEGER: c_int = 192;
pub const MPI_TYPECLASS_REAL: c_int = 193;
pub const MPI_TYPECLASS_COMPLEX: c_int = 194;
pub const MPI_IDENT: c_int = 201;
pub const MPI_CONGRUENT: c_int = 202;
pub const MPI_SIMILAR: c_int = 203;
pub const MPI_UNEQUAL: c_int = 204;
pub const MPI_CART: c_int = 211;
pub const MPI_GRAPH: c_int = 212;
pub const MPI_DIST_GRAPH: c_int = 213;
pub const MPI_COMM_TYPE_SHARED: c_int = 221;
pub const MPI_COMM_TYPE_HW_UNGUIDED: c_int = 222;
pub const MPI_COMM_TYPE_HW_GUIDED: c_int = 223;
pub const MPI_COMM_TYPE_RESOURCE_GUIDED: c_int = 224;
pub const MPI_LOCK_EXCLUSIVE: c_int = 301;
pub const MPI_LOCK_SHARED: c_int = 302;
pub const MPI_WIN_FLAVOR_CREATE: c_int = 311;
pub const MPI_WIN_FLAVOR_ALLOCATE: c_int = 312;
pub const MPI_WIN_FLAVOR_DYNAMIC: c_int = 313;
pub const MPI_WIN_FLAVOR_SHARED: c_int = 314;
pub const MPI_WIN_UNIFIED: c_int = 321;
pub const MPI_WIN_SEPARATE: c_int = 322;
pub const MPI_SEEK_CUR: c_int = 401;
pub const MPI_SEEK_END: c_int = 402;
pub const MPI_SEEK_SET: c_int = 403;
pub const MPI_KEYVAL_INVALID: c_int = 0;
pub const MPI_TAG_UB: c_int = 501;
pub const MPI_IO: c_int = 502;
pub const MPI_HOST: c_int = 503;
pub const MPI_WTIME_IS_GLOBAL: c_int = 504;
pub const MPI_APPNUM: c_int = 505;
pub const MPI_LASTUSEDCODE: c_int = 506;
pub const MPI_UNIVERSE_SIZE: c_int = 507;
pub const MPI_WIN_BASE: c_int = 601;
pub const MPI_WIN_DISP_UNIT: c_int = 602;
pub const MPI_WIN_SIZE: c_int = 603;
pub const MPI_WIN_CREATE_FLAVOR: c_int = 604;
pub const MPI_WIN_MODEL: c_int = 605;
pub const MPI_T_CB_REQUIRE_NONE: c_int = 0x00;
pub const MPI_T_CB_REQUIRE_MPI_RESTRICTED: c_int = 0x03;
pub const MPI_T_CB_REQUIRE_THREAD_SAFE: c_int = 0x0F;
pub const MPI_T_CB_REQUIRE_ASYNC_SIGNAL_SAFE: c_int = 0x3F;
pub const MPI_T_SOURCE_ORDERED: c_int = 1;
pub const MPI_T_SOURCE_UNORDERED: c_int = 2;
pub const MPI_T_VERBOSITY_USER_BASIC: c_int = 0x09;
pub const MPI_T_VERBOSITY_USER_DETAIL: c_int = 0x0a;
pub const MPI_T_VERBOSITY_USER_ALL: c_int = 0x0c;
pub const MPI_T_VERBOSITY_TUNER_BASIC: c_int = 0x11;
pub const MPI_T_VERBOSITY_TUNER_DETAIL: c_int = 0x12;
pub const MPI_T_VERBOSITY_TUNER_ALL: c_int = 0x14;
pub const MPI_T_VERBOSITY_MPIDEV_BASIC: c_int = 0x21;
pub const MPI_T_VERBOSITY_MPIDEV_DETAIL: c_int = 0x22;
pub const MPI_T_VERBOSITY_MPIDEV_ALL: c_int = 0x24;
pub const MPI_T_BIND_NO_OBJECT: c_int = 1;
pub const MPI_T_BIND_MPI_COMM: c_int = 2;
pub const MPI_T_BIND_MPI_DATATYPE: c_int = 3;
pub const MPI_T_BIND_MPI_ERRHANDLER: c_int = 4;
pub const MPI_T_BIND_MPI_FILE: c_int = 5;
pub const MPI_T_BIND_MPI_GROUP: c_int = 6;
pub const MPI_T_BIND_MPI_OP: c_int = 7;
pub const MPI_T_BIND_MPI_REQUEST: c_int = 8;
pub const MPI_T_BIND_MPI_WIN: c_int = 9;
pub const MPI_T_BIND_MPI_MESSAGE: c_int = 10;
pub const MPI_T_BIND_MPI_INFO: c_int = 11;
pub const MPI_T_BIND_MPI_SESSION: c_int = 12;
pub const MPI_T_SCOPE_CONSTANT: c_int = 1;
pub const MPI_T_SCOPE_READONLY: c_int = 2;
pub const MPI_T_SCOPE_LOCAL: c_int = 3;
pub const MPI_T_SCOPE_GROUP: c_int = 4;
pub const MPI_T_SCOPE_GROUP_EQ: c_int = 5;
pub const MPI_T_SCOPE_ALL: c_int = 6;
pub const MPI_T_SCOPE_ALL_EQ: c_int = 7;
pub const MPI_T_PVAR_CLASS_STATE: c_int = 1;
pub const MPI_T_PVAR_CLASS_LEVEL: c_int = 2;
pub const MPI_T_PVAR_CLASS_SIZE: c_int = 3;
pub const MPI_T_PVAR_CLASS_PERCENTAGE: c_int = 4;
pub const MPI_T_PVAR_CLASS_HIGHWATERMARK: c_int = 5;
pub const MPI_T_PVAR_CLASS_LOWWATERMARK: c_int = 6;
pub const MPI_T_PVAR_CLASS_COUNTER: c_int = 7;
pub const MPI_T_PVAR_CLASS_AGGREGATE: c_int = 8;
pub const MPI_T_PVAR_CLASS_TIMER: c_int = 9;
pub const MPI_T_PVAR_CLASS_GENERIC: c_int = 10;

pub const MPI_VERSION: c_int = 5;
pub const MPI_SUBVERSION: c_int = 0;
pub const MPI_ABI_VERSION: c_int = 1;
pub const MPI_ABI_SUBVERSION: c_int = 0;
pub const MPI_MAX_DATAREP_STRING: c_int = 128;
pub const MPI_MAX_ERROR_STRING: c_int = 512;
pub const MPI_MAX_INFO_KEY: c_int = 256;
pub const MPI_MAX_INFO_VAL: c_int = 1024;
pub const MPI_MAX_LIBRARY_VERSION_STRING: c_int = 8192;
pub const MPI_MAX_OBJECT_NAME: c_int = 128;
pub const MPI_MAX_PORT_NAME: c_int = 1024;
pub const MPI_MAX_PROCESSOR_NAME: c_int = 256;
pub const MPI_MAX_STRINGTAG_LEN: c_int = 1024;
pub const MPI_MAX_PSET_NAME_LEN: c_int = 1024;
pub const MPI_BSEND_OVERHEAD: c_int = 512;

pub const MPI_DISPLACEMENT_CURRENT: MPI_Offset = -1;
/// Addresses are absolute.
pub const MPI_BOTTOM: usize = 0;
/// The buffer is both.
pub const MPI_IN_PLACE: usize = 1;
/// The library provides the buffer.
pub const MPI_BUFFER_AUTOMATIC: usize = 2;
pub const MPI_UNWEIGHTED: usize = 10;
pub const MPI_WEIGHTS_EMPTY: usize = 11;

// Fault tolerance (ULFM). The standard ABI numbers none of these: they are in the part of the range up to `MPI_ERR_LASTCODE`
// that it leaves alone, beside its own classes (1 to 62) and those of tools (1001 to 1018).
/// A process that the operation needs has failed.
pub const MPIX_ERR_PROC_FAILED: c_int = 0x3f01;
/// A possible sender has failed, and the wildcard receive is still pending.
pub const MPIX_ERR_PROC_FAILED_PENDING: c_int = 0x3f02;
/// The communicator was revoked.
pub const MPIX_ERR_REVOKED: c_int = 0x3f03;
/// The attribute of `MPI_COMM_WORLD` that tells whether the job tolerates failures: it does.
pub const MPIX_FT: c_int = 0x0f01;
