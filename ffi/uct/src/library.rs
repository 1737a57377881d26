//! The opened library: its calls, its resources, and what is made quiet in it.
//!
//! UCX reads its configuration by itself when it is loaded: `UCX_…` variables and `ucx.conf`. They are honoured, but its log
//! level is FATAL unless `UCX_LOG_LEVEL` says otherwise, and its handlers of fatal signals are taken out unless
//! `UCX_HANDLE_ERRORS` asks for them: a transport prints nothing and ends no process (law 3).

use crate::raw::{self, Handle};
use crate::status::Status;
use ironweave_ffi::library::{Library, LibraryError};
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr::{null, null_mut};
use std::sync::Mutex;

/// The environment variable that names the library.
pub const VARIABLE: &str = "IRONWEAVE_UCT_LIB";
/// The library that is opened otherwise.
const SONAME: &str = "libuct.so.0";

/// Why there is no UCT, or why it cannot be used, in words for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UctError {
    /// The dynamic linker's words.
    #[error("no UCX: {0}")]
    Absent(String),
    /// Another one is open, whose parts would be taken for this one's.
    #[error("{wanted} cannot be opened: this process uses {open} already")]
    Another {
        /// The name it was to be opened by.
        wanted: String,
        /// The one that is open.
        open: String,
    },
    /// Its progress queue is not laid out in a way that is known.
    #[error("{name} is a version of UCX whose progress queue is not known here")]
    Unknown {
        /// The name it was opened by.
        name: String,
    },
    /// A call failed.
    #[error("{call}: {status}")]
    Call {
        /// Which one.
        call: &'static str,
        /// What it returned.
        status: Status,
    },
}

pub(crate) fn call(call: &'static str, status: Status) -> Result<Status, UctError> {
    status.check().map_err(|status| UctError::Call { call, status })
}

macro_rules! calls {
    ($($name:ident: fn($($arg:ty),*) $(-> $ret:ty)?;)*) => {
        /// The library's functions.
        pub(crate) struct Calls {
            $(pub $name: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)*
        }

        impl Calls {
            fn of(library: &Library) -> Result<Calls, LibraryError> {
                Ok(Calls {$($name: {
                    let address = library.symbol(stringify!($name))?;
                    // SAFETY: the function of that name has this type in UCX's public headers.
                    unsafe {
                        std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) $(-> $ret)?>(
                            address.as_ptr(),
                        )
                    }
                },)*})
            }
        }
    };
}

calls! {
    uct_query_components: fn(*mut *mut Handle, *mut c_uint) -> Status;
    uct_release_component_list: fn(*mut Handle);
    uct_component_query: fn(Handle, *mut raw::ComponentAttr) -> Status;
    uct_md_config_read: fn(Handle, *const c_char, *const c_char, *mut Handle) -> Status;
    uct_md_open: fn(Handle, *const c_char, Handle, *mut Handle) -> Status;
    uct_md_close: fn(Handle);
    uct_md_query: fn(Handle, *mut raw::MdAttr) -> Status;
    uct_md_query_tl_resources: fn(Handle, *mut *mut raw::TlResource, *mut c_uint) -> Status;
    uct_release_tl_resource_list: fn(*mut raw::TlResource);
    uct_md_iface_config_read: fn(Handle, *const c_char, *const c_char, *const c_char, *mut Handle) -> Status;
    uct_config_modify: fn(Handle, *const c_char, *const c_char) -> Status;
    uct_config_release: fn(Handle);
    uct_md_mem_reg: fn(Handle, *mut c_void, usize, c_uint, *mut Handle) -> Status;
    uct_md_mem_dereg: fn(Handle, Handle) -> Status;
    uct_md_mkey_pack: fn(Handle, Handle, *mut c_void) -> Status;
    uct_rkey_unpack: fn(Handle, *const c_void, *mut raw::RkeyBundle) -> Status;
    uct_rkey_release: fn(Handle, *const raw::RkeyBundle) -> Status;
    uct_worker_create: fn(Handle, c_uint, *mut Handle) -> Status;
    uct_worker_destroy: fn(Handle);
    uct_worker_progress_register_safe: fn(Handle, raw::Progress, *mut c_void, c_uint, *mut c_int);
    uct_worker_progress_unregister_safe: fn(Handle, *mut c_int);
    uct_iface_open: fn(Handle, Handle, *const raw::IfaceParams, Handle, *mut *mut raw::Iface) -> Status;
    uct_iface_close: fn(*mut raw::Iface);
    uct_iface_query: fn(*mut raw::Iface, *mut raw::IfaceAttr) -> Status;
    uct_iface_get_device_address: fn(*mut raw::Iface, *mut u8) -> Status;
    uct_iface_get_address: fn(*mut raw::Iface, *mut u8) -> Status;
    uct_iface_is_reachable: fn(*mut raw::Iface, *const u8, *const u8) -> c_int;
    uct_iface_set_am_handler: fn(*mut raw::Iface, u8, raw::AmHandler, *mut c_void, u32) -> Status;
    uct_iface_event_fd_get: fn(*mut raw::Iface, *mut c_int) -> Status;
    uct_iface_event_arm: fn(*mut raw::Iface, c_uint) -> Status;
    uct_ep_create: fn(*const raw::EpParams, *mut *mut raw::Ep) -> Status;
    uct_ep_destroy: fn(*mut raw::Ep);
    uct_ep_get_address: fn(*mut raw::Ep, *mut u8) -> Status;
    uct_ep_connect_to_ep: fn(*mut raw::Ep, *const u8, *const u8) -> Status;
    ucs_async_context_create: fn(c_uint, *mut Handle) -> Status;
    ucs_async_context_destroy: fn(Handle);
    ucs_async_poll: fn(Handle);
    ucs_global_opts_set_value: fn(*const c_char, *const c_char) -> Status;
    ucs_debug_disable_signals: fn();
}

/// What kind of device a transport runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceKind {
    /// A network.
    Network,
    /// Memory shared by the processes of a host.
    SharedMemory,
    /// Accelerators' memory.
    Accelerator,
    /// This process alone.
    Loopback,
    /// Something newer.
    Other,
}

/// A transport on a device, as the library offers it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resource {
    /// The component (`tcp`, `posix`, `ib`, …).
    pub component: String,
    /// Its memory domain.
    pub domain: String,
    /// The transport (`tcp`, `posix`, `rc_verbs`, …).
    pub transport: String,
    /// The device (`eth0`, `memory`, `mlx5_0:1`, …).
    pub device: String,
    /// What kind of device that is.
    pub kind: DeviceKind,
}

/// An opened UCT. Stays open, and at its place, for the life of the process.
pub struct Uct {
    name: String,
    library: Library,
    pub(crate) calls: Calls,
    /// Bytes from one element of a worker's progress queue to the next.
    pub(crate) stride: usize,
}

/// Settings of every memory domain that has such.
const DOMAIN: [(&CStr, &CStr); 2] = [
    // Of memory that was deregistered nothing may be kept open to peers (law 2). Versions that keep nothing do not know it.
    (c"REG_METHODS", c"direct"),
    // A thread of UCX's takes a device's second word of a queue pair's end for a mistake of its own and ends the process
    // (1.13 as Debian builds it; 1.18 has the same lines), and Soft-RoCE says it more than once (law 3). Without, the queue
    // pairs of endpoints that were closed go with the interface.
    (c"ASYNC_EVENTS", c"n"),
];

/// The library that was opened: there is one, since two would share parts by their sonames.
static OPENED: Mutex<Option<&'static Uct>> = Mutex::new(None);

impl Uct {
    /// Opens the library that `IRONWEAVE_UCT_LIB` names, or `libuct.so.0`. The second call is free.
    ///
    /// # Errors
    /// In words: absent, or not of a known version.
    pub fn open() -> Result<&'static Uct, UctError> {
        match std::env::var(VARIABLE) {
            Ok(name) if !name.is_empty() => Self::open_named(&name),
            _ => Self::open_named(SONAME),
        }
    }

    /// Opens the library `name`: a soname or a path.
    ///
    /// # Errors
    /// As [`Uct::open`]; also when another one is open.
    pub fn open_named(name: &str) -> Result<&'static Uct, UctError> {
        // A panic while it was locked left it as it was: it is only set.
        let mut opened = OPENED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match *opened {
            Some(uct) if uct.name == name => Ok(uct),
            Some(uct) => Err(UctError::Another { wanted: name.to_owned(), open: uct.name.clone() }),
            None => {
                let uct: &'static Uct = Box::leak(Box::new(Self::load(name)?));
                *opened = Some(uct);
                Ok(uct)
            }
        }
    }

    fn load(name: &str) -> Result<Uct, UctError> {
        let absent = |error: LibraryError| UctError::Absent(error.to_string());
        let library = Library::open(name).map_err(absent)?;
        let calls = Calls::of(&library).map_err(absent)?;
        hush(&calls);
        let stride = stride(&calls)?.ok_or_else(|| UctError::Unknown { name: name.to_owned() })?;
        Ok(Uct { name: name.to_owned(), library, calls, stride })
    }

    /// The name it was opened by.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> Option<std::path::PathBuf> {
        self.library.path_of("uct_query_components")
    }

    /// Whether it is older than 1.16 or so, by its progress queue.
    #[must_use]
    pub fn is_old(&self) -> bool {
        self.stride == 24
    }

    /// Every transport on every device, in the library's order.
    ///
    /// # Errors
    /// When components cannot be listed. A memory domain that does not open is left out.
    pub fn resources(&self) -> Result<Vec<Resource>, UctError> {
        let mut found = Vec::new();
        self.each_component(|component, name, domains| {
            for domain in domains {
                let Ok(md) = self.open_md(component, &domain) else { continue };
                found.extend(self.resources_of(md).into_iter().map(|resource| Resource {
                    component: name.to_owned(),
                    domain: domain.clone(),
                    transport: text(&resource.transport),
                    device: text(&resource.device),
                    kind: match resource.kind {
                        0 => DeviceKind::Network,
                        1 => DeviceKind::SharedMemory,
                        2 => DeviceKind::Accelerator,
                        3 => DeviceKind::Loopback,
                        _ => DeviceKind::Other,
                    },
                }));
                // SAFETY: opened above, and nothing of it is left.
                unsafe { (self.calls.uct_md_close)(md) };
            }
        })?;
        Ok(found)
    }

    /// Opens the component and memory domain of a resource; handles of components live as long as the library.
    pub(crate) fn open_domain(&self, resource: &Resource) -> Result<(Handle, Handle), UctError> {
        let mut opened = Err(UctError::Call { call: "uct_md_open", status: Status::NO_DEVICE });
        self.each_component(|component, name, _| {
            if name == resource.component {
                opened = self.open_md(component, &resource.domain).map(|md| (component, md));
            }
        })?;
        opened
    }

    fn each_component(
        &self,
        mut see: impl FnMut(Handle, &str, Vec<String>),
    ) -> Result<(), UctError> {
        let (mut list, mut count) = (null_mut(), 0);
        // SAFETY: both are written; the list is released below.
        let status = unsafe { (self.calls.uct_query_components)(&mut list, &mut count) };
        call("uct_query_components", status)?;
        for at in 0..count as usize {
            // SAFETY: the list has `count` handles.
            let component = unsafe { *list.add(at) };
            if let Ok((name, domains)) = self.describe(component) {
                see(component, &name, domains);
            }
        }
        // SAFETY: it came from the query.
        unsafe { (self.calls.uct_release_component_list)(list) };
        Ok(())
    }

    fn describe(&self, component: Handle) -> Result<(String, Vec<String>), UctError> {
        let mut attr = raw::ComponentAttr {
            field_mask: raw::COMPONENT_NAME | raw::COMPONENT_MD_COUNT,
            name: [0; 16],
            md_resource_count: 0,
            md_resources: null_mut(),
            flags: 0,
        };
        // SAFETY: only the fields of the mask are written.
        call("uct_component_query", unsafe {
            (self.calls.uct_component_query)(component, &mut attr)
        })?;
        let mut domains = vec![raw::MdResource { name: [0; 16] }; attr.md_resource_count as usize];
        if !domains.is_empty() {
            attr.field_mask = raw::COMPONENT_MDS;
            attr.md_resources = domains.as_mut_ptr();
            // SAFETY: the array has as many entries as the component just said.
            let status = unsafe { (self.calls.uct_component_query)(component, &mut attr) };
            call("uct_component_query", status)?;
        }
        Ok((text(&attr.name), domains.iter().map(|domain| text(&domain.name)).collect()))
    }

    fn open_md(&self, component: Handle, name: &str) -> Result<Handle, UctError> {
        let c_name = c_string(name);
        let (mut config, mut md) = (null_mut(), null_mut());
        // SAFETY: the configuration is released below; names are terminated; results are written.
        unsafe {
            let read = (self.calls.uct_md_config_read)(component, null(), null(), &mut config);
            call("uct_md_config_read", read)?;
            for (name, value) in DOMAIN {
                (self.calls.uct_config_modify)(config, name.as_ptr(), value.as_ptr());
            }
            let opened = (self.calls.uct_md_open)(component, c_name.as_ptr(), config, &mut md);
            (self.calls.uct_config_release)(config);
            call("uct_md_open", opened)?;
        }
        Ok(md)
    }

    fn resources_of(&self, md: Handle) -> Vec<raw::TlResource> {
        let (mut list, mut count) = (null_mut(), 0);
        // SAFETY: both are written; the entries are copied before the list is released.
        unsafe {
            let status = (self.calls.uct_md_query_tl_resources)(md, &mut list, &mut count);
            if status.is_error() || count == 0 {
                return Vec::new();
            }
            let resources = std::slice::from_raw_parts(list, count as usize).to_vec();
            (self.calls.uct_release_tl_resource_list)(list);
            resources
        }
    }
}

impl std::fmt::Debug for Uct {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Uct").field("name", &self.name).field("stride", &self.stride).finish()
    }
}

/// Text without its terminator; what is not UTF-8 is replaced.
fn text(chars: &[c_char]) -> String {
    let bytes: Vec<u8> = chars.iter().map(|&c| c as u8).take_while(|&b| b != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// For names of the library's own, which have no NUL inside.
pub(crate) fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "")).expect("NULs were taken out")
}

/// Prints nothing and catches no signals, unless the user asked for it.
fn hush(calls: &Calls) {
    if std::env::var_os("UCX_LOG_LEVEL").is_none() {
        // SAFETY: terminated strings; the option is a word of the library's own.
        unsafe { (calls.ucs_global_opts_set_value)(c"LOG_LEVEL".as_ptr(), c"fatal".as_ptr()) };
    }
    if std::env::var_os("UCX_HANDLE_ERRORS").is_none() {
        // SAFETY: takes nothing; puts back the handlers that were there before the library's.
        unsafe { (calls.ucs_debug_disable_signals)() };
    }
}

/// The stride of a worker's progress queue: two callbacks of ours are put into it and looked for.
///
/// The header's `uct_worker_progress` is inline: its callers must know where the elements are, and that has changed
/// from one version to another.
fn stride(calls: &Calls) -> Result<Option<usize>, UctError> {
    unsafe extern "C" fn nothing(_: *mut c_void) -> c_uint {
        0
    }
    let (mut context, mut worker) = (null_mut(), null_mut());
    // SAFETY: results are written; both are destroyed below.
    unsafe {
        call(
            "ucs_async_context_create",
            (calls.ucs_async_context_create)(raw::ASYNC_POLL, &mut context),
        )?;
        let created = (calls.uct_worker_create)(context, raw::THREAD_SINGLE, &mut worker);
        if created.is_error() {
            (calls.ucs_async_context_destroy)(context);
            call("uct_worker_create", created)?;
        }
    }
    // Their arguments are marks: nobody follows them.
    let marks = [0x5eed_0001_usize, 0x5eed_0002];
    let mut ids = [-1; 2];
    for (mark, id) in marks.iter().zip(&mut ids) {
        // SAFETY: the callback ignores its argument.
        unsafe {
            let mark = std::ptr::without_provenance_mut(*mark);
            (calls.uct_worker_progress_register_safe)(
                worker,
                nothing,
                mark,
                raw::CALLBACK_FAST,
                id,
            );
        }
    }
    let words = worker.cast::<usize>().cast_const();
    let look = || {
        let at = |mark: usize| {
            // SAFETY: the queue of 8 elements of at least 16 bytes starts the worker in every version.
            (0..16).find(|&word| unsafe { words.add(word).read() } == mark)
        };
        Some(at(marks[0])?.abs_diff(at(marks[1])?) * size_of::<usize>())
    };
    let mut found = look();
    if found.is_none() {
        // They wait for the first element, which is where it always was, to take them in.
        // SAFETY: an element is a callback and its argument; the queue is never without its sentinel.
        unsafe {
            let first = words.cast::<Option<raw::Progress>>().read();
            let argument = words.add(1).cast::<*mut c_void>().read();
            if let Some(first) = first {
                first(argument);
            }
        }
        found = look();
    }
    // SAFETY: what was registered and created above, in the reverse order.
    unsafe {
        for id in &mut ids {
            (calls.uct_worker_progress_unregister_safe)(worker, id);
        }
        (calls.uct_worker_destroy)(worker);
        (calls.ucs_async_context_destroy)(context);
    }
    Ok(found.filter(|stride| [16, 24].contains(stride)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_lists_its_transports_or_is_named_in_the_reason() {
        let uct = match Uct::open() {
            Ok(uct) => uct,
            Err(error) => {
                assert!(error.to_string().contains("uct"), "{error}");
                println!("SKIP uct/resources: {error}");
                return;
            }
        };
        let resources = uct.resources().unwrap();
        let has = |name: &str| resources.iter().any(|resource| resource.transport == name);
        assert!(has("self") && has("tcp"), "{resources:?}");
        let error = Uct::open_named("libuct-of-another-name.so").unwrap_err().to_string();
        assert!(error.contains("libuct-of-another-name.so"), "{error}");
        assert_eq!(Uct::open().unwrap().name(), uct.name());
    }

    #[test]
    fn absent_libraries_are_named() {
        let error = Uct::load("libuct-none.so.7").unwrap_err().to_string();
        assert!(error.contains("libuct-none.so.7"), "{error}");
    }
}
