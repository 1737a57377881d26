//! The connection manager (librdmacm), opened at run time: the only way to connect the queue pairs of iWARP devices,
//! whose connections are TCP's. Nothing here blocks but set-up calls of the kernel.
//!
//! A queue pair is made by its owner and named by number; the manager moves it to RTS. Without the library everything is
//! an error in words.

use crate::VerbsError;
use ironweave_ffi::{Library, LibraryError};
use std::ffi::{c_int, c_void};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::{Arc, OnceLock};

/// `RDMA_PS_TCP`: reliable connections.
const PORT_SPACE_TCP: c_int = 0x0106;
/// Connections that wait to be accepted.
const BACKLOG: c_int = 128;
/// Bytes that a connection request carries at most: what iWARP and the library allow, less the headers.
pub const PRIVATE_MAX: usize = 196;

#[repr(C)]
struct RawChannel {
    fd: c_int,
}

/// The beginning of `struct rdma_cm_id`; it is only ever used behind a pointer.
#[repr(C)]
struct RawId {
    _verbs: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct RawParam {
    private_data: *const c_void,
    private_data_len: u8,
    responder_resources: u8,
    initiator_depth: u8,
    flow_control: u8,
    retry_count: u8,
    rnr_retry_count: u8,
    srq: u8,
    qp_num: u32,
}

/// `struct rdma_cm_event`; the union's largest member is longer, but only its beginning is read.
#[repr(C)]
struct RawEvent {
    id: *mut RawId,
    listen_id: *mut RawId,
    event: c_int,
    status: c_int,
    param: RawParam,
}

macro_rules! library {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions of the library.
        #[derive(Debug)]
        struct Symbols {
            $($name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Symbols {
            fn find(library: &Library) -> Result<Symbols, LibraryError> {
                Ok(Symbols {
                    $($name: {
                        let address = library.symbol(concat!("rdma_", stringify!($name)))?;
                        // SAFETY: this symbol has the type that rdma_cma.h declares, written out below; pointers to
                        // functions and to data have the same representation.
                        unsafe {
                            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>(
                                address.as_ptr(),
                            )
                        }
                    },)*
                })
            }
        }
    };
}

library! {
    create_event_channel: fn() -> *mut RawChannel;
    destroy_event_channel: fn(*mut RawChannel);
    create_id: fn(*mut RawChannel, *mut *mut RawId, *mut c_void, c_int) -> c_int;
    destroy_id: fn(*mut RawId) -> c_int;
    bind_addr: fn(*mut RawId, *mut c_void) -> c_int;
    listen: fn(*mut RawId, c_int) -> c_int;
    get_src_port: fn(*mut RawId) -> u16;
    resolve_addr: fn(*mut RawId, *mut c_void, *mut c_void, c_int) -> c_int;
    resolve_route: fn(*mut RawId, c_int) -> c_int;
    connect: fn(*mut RawId, *mut RawParam) -> c_int;
    accept: fn(*mut RawId, *mut RawParam) -> c_int;
    get_cm_event: fn(*mut RawChannel, *mut *mut RawEvent) -> c_int;
    ack_cm_event: fn(*mut RawEvent) -> c_int;
}

fn symbols() -> Result<&'static Symbols, VerbsError> {
    static SYMBOLS: OnceLock<Result<Symbols, String>> = OnceLock::new();
    let found = SYMBOLS.get_or_init(|| {
        let open = || -> Result<Symbols, LibraryError> {
            Symbols::find(&Library::open("librdmacm.so.1")?)
        };
        open().map_err(|error| error.to_string())
    });
    found.as_ref().map_err(|why| VerbsError::Library(why.clone()))
}

/// An address as the C library has it.
#[repr(C)]
union RawAddress {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

fn raw(address: SocketAddr) -> RawAddress {
    match address {
        SocketAddr::V4(address) => RawAddress {
            v4: libc::sockaddr_in {
                sin_family: libc::AF_INET as u16,
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
                sin_zero: [0; 8],
            },
        },
        SocketAddr::V6(address) => RawAddress {
            v6: libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as u16,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                sin6_scope_id: address.scope_id(),
            },
        },
    }
}

/// Makes connections and hears of them. Copies name the same one.
#[derive(Clone)]
pub struct Manager(Arc<Channel>);

struct Channel {
    channel: *mut RawChannel,
    symbols: &'static Symbols,
}

// SAFETY: librdmacm is thread-safe.
unsafe impl Send for Channel {}
// SAFETY: as above.
unsafe impl Sync for Channel {}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: every id holds the channel, so none is left; destroyed once.
        unsafe { (self.symbols.destroy_event_channel)(self.channel) };
    }
}

/// Names a connection in events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key(usize);

/// One connection, or the place where calls are heard. Dropping it ends it; its queue pair goes before it.
pub struct Id {
    id: *mut RawId,
    channel: Arc<Channel>,
    /// Whom it calls.
    called: Option<SocketAddr>,
}

// SAFETY: librdmacm is thread-safe.
unsafe impl Send for Id {}

impl std::fmt::Debug for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.key().fmt(f)
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        // SAFETY: destroyed once; every event of it was acknowledged when it was got.
        unsafe { (self.channel.symbols.destroy_id)(self.id) };
    }
}

/// What the manager tells.
#[derive(Debug)]
pub enum Told {
    /// The way to the peer's address is known: next [`Id::find_route`].
    Addressed(Key),
    /// The route is known: next [`Id::connect`].
    Routed(Key),
    /// Somebody calls, with these bytes; dropping the id refuses.
    Called(Id, Vec<u8>),
    /// The connection carries data.
    Established(Key),
    /// It came to nothing: refused, unreachable, timed out. The manager's event and status.
    Failed(Key, i32, i32),
    /// The other side has ended it.
    Ended(Key),
    /// Nothing to act upon.
    Other(i32),
}

impl Manager {
    /// A manager of its own.
    ///
    /// # Errors
    /// When the library or the kernel's part is not there.
    pub fn new() -> Result<Manager, VerbsError> {
        let symbols = symbols()?;
        // SAFETY: takes nothing.
        let channel = unsafe { (symbols.create_event_channel)() };
        if channel.is_null() {
            return Err(VerbsError::last("rdma_create_event_channel"));
        }
        let manager = Manager(Arc::new(Channel { channel, symbols }));
        let fd = manager.fd();
        // SAFETY: plain system calls on a descriptor that is open.
        let done = unsafe {
            let flags = libc::fcntl(fd, libc::F_GETFL);
            libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK)
        };
        if done < 0 { Err(VerbsError::last("fcntl")) } else { Ok(manager) }
    }

    /// Readable when [`told`](Manager::told) has something. Open as long as the manager.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        // SAFETY: a channel that exists.
        unsafe { (*self.0.channel).fd }
    }

    fn id(&self) -> Result<Id, VerbsError> {
        let mut id = std::ptr::null_mut();
        // SAFETY: a channel that exists; writes the id.
        let code = unsafe {
            let nothing = std::ptr::null_mut();
            (self.0.symbols.create_id)(self.0.channel, &mut id, nothing, PORT_SPACE_TCP)
        };
        VerbsError::check("rdma_create_id", code)?;
        Ok(Id { id, channel: Arc::clone(&self.0), called: None })
    }

    /// Listens at `address` on a free port: the id to keep, and the port.
    ///
    /// # Errors
    /// When the address is not of an RDMA device here.
    pub fn listen(&self, address: IpAddr) -> Result<(Id, u16), VerbsError> {
        let id = self.id()?;
        let mut address = raw(SocketAddr::new(address, 0));
        // SAFETY: an id that exists and an address of its family.
        let port = unsafe {
            let bound = (self.0.symbols.bind_addr)(id.id, (&raw mut address).cast());
            VerbsError::check("rdma_bind_addr", bound)?;
            VerbsError::check("rdma_listen", (self.0.symbols.listen)(id.id, BACKLOG))?;
            u16::from_be((self.0.symbols.get_src_port)(id.id))
        };
        Ok((id, port))
    }

    /// Begins a connection from our `from` to `to`; [`Told::Addressed`] or [`Told::Failed`] follows within `patience`
    /// milliseconds.
    ///
    /// # Errors
    /// When there is no such address here.
    pub fn call(&self, from: IpAddr, to: SocketAddr, patience: i32) -> Result<Id, VerbsError> {
        let mut id = self.id()?;
        id.called = Some(to);
        let (mut from, mut to) = (raw(SocketAddr::new(from, 0)), raw(to));
        // SAFETY: an id that exists, and addresses of the same family.
        let code = unsafe {
            let (from, to) = ((&raw mut from).cast(), (&raw mut to).cast());
            (self.0.symbols.resolve_addr)(id.id, from, to, patience)
        };
        VerbsError::check("rdma_resolve_addr", code)?;
        Ok(id)
    }

    /// The next thing told; does not block.
    #[must_use]
    pub fn told(&self) -> Option<Told> {
        let mut event: *mut RawEvent = std::ptr::null_mut();
        // SAFETY: a channel that does not block.
        if unsafe { (self.0.symbols.get_cm_event)(self.0.channel, &mut event) } != 0 {
            return None;
        }
        // SAFETY: an event until it is acknowledged, below; its beginning is as `RawEvent` says.
        let (id, kind, status, param) =
            unsafe { ((*event).id, (*event).event, (*event).status, (*event).param) };
        let key = Key(id as usize);
        let told = match kind {
            0 => Told::Addressed(key),
            2 => Told::Routed(key),
            4 => {
                let len = usize::from(param.private_data_len);
                let bytes = if param.private_data.is_null() || len == 0 {
                    Vec::new()
                } else {
                    // SAFETY: the event has that many bytes there until it is acknowledged.
                    unsafe { std::slice::from_raw_parts(param.private_data.cast::<u8>(), len) }
                        .to_vec()
                };
                Told::Called(Id { id, channel: Arc::clone(&self.0), called: None }, bytes)
            }
            1 | 3 | 6 | 7 | 8 => Told::Failed(key, kind, status),
            9 => Told::Established(key),
            10 => Told::Ended(key),
            other => Told::Other(other),
        };
        // SAFETY: the event that was just got, acknowledged once. (A refused caller's id is dropped by whoever gets
        // `Called`, after this.)
        unsafe { (self.0.symbols.ack_cm_event)(event) };
        Some(told)
    }
}

impl Id {
    /// Its name in events.
    #[must_use]
    pub fn key(&self) -> Key {
        Key(self.id as usize)
    }

    /// Whom it calls; `None` where it was called, or listens.
    #[must_use]
    pub fn called(&self) -> Option<SocketAddr> {
        self.called
    }

    /// Second step of a call; [`Told::Routed`] or [`Told::Failed`] follows within `patience` milliseconds.
    ///
    /// # Errors
    /// When it is not its time.
    pub fn find_route(&self, patience: i32) -> Result<(), VerbsError> {
        // SAFETY: an id that exists.
        let code = unsafe { (self.channel.symbols.resolve_route)(self.id, patience) };
        VerbsError::check("rdma_resolve_route", code)
    }

    /// Third step: asks the peer, with `data` (at most [`PRIVATE_MAX`] bytes), to connect with queue pair `number` of ours;
    /// each side may have `reads` reads under way.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn connect(&self, number: u32, reads: u8, data: &[u8]) -> Result<(), VerbsError> {
        let mut param = parameters(number, reads, data);
        // SAFETY: an id that exists; the parameters and their bytes live until the call returns.
        let code = unsafe { (self.channel.symbols.connect)(self.id, &mut param) };
        VerbsError::check("rdma_connect", code)
    }

    /// Accepts a call with queue pair `number` of ours.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn accept(&self, number: u32, reads: u8) -> Result<(), VerbsError> {
        let mut param = parameters(number, reads, &[]);
        // SAFETY: as above.
        let code = unsafe { (self.channel.symbols.accept)(self.id, &mut param) };
        VerbsError::check("rdma_accept", code)
    }
}

fn parameters(number: u32, reads: u8, data: &[u8]) -> RawParam {
    assert!(data.len() <= PRIVATE_MAX, "a connection request carries no {} bytes", data.len());
    RawParam {
        private_data: data.as_ptr().cast(),
        private_data_len: data.len() as u8,
        responder_resources: reads,
        initiator_depth: reads,
        flow_control: 0,
        // iWARP has no use for these.
        retry_count: 6,
        rnr_retry_count: 6,
        srq: 1,
        qp_num: number,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manager_is_never_told_to_try_for_ever() {
        let told = parameters(7, 4, b"data");
        assert!(told.retry_count < 7 && told.rnr_retry_count < 7);
    }
}
