//! What `fi_getinfo` offers: one provider and domain each, owned, with checked getters.
//! Reads structures that the C library allocated: see the invariant at [`Info`].

use super::raw;
use super::{Errno, Ofi, OfiError};
use std::ffi::{CStr, CString, c_char};
use std::fmt;
use std::ptr::{NonNull, null};

/// What an endpoint is to be able to do. Each is asked for; what a provider does not have is seen in [`Info`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// Reads of registered memory.
    pub rma: bool,
    /// Many messages into one posted buffer.
    pub multi_recv: bool,
    /// Messages to one peer arrive in the order in which they were sent.
    pub ordered: bool,
}

impl Wanted {
    /// From everything down to the least that can be used.
    const LADDER: [Wanted; 6] = {
        let all = Wanted { rma: true, multi_recv: true, ordered: true };
        [
            all,
            Wanted { rma: false, ..all },
            Wanted { multi_recv: false, ..all },
            Wanted { rma: false, multi_recv: false, ordered: true },
            Wanted { ordered: false, ..all },
            Wanted { rma: false, multi_recv: false, ordered: false },
        ]
    };
}

/// One way to reach others: a provider on a domain (a device, an interface) of a fabric.
///
/// Invariant: `raw` is one structure, not a list, made by the library's `fi_dupinfo`; its attribute pointers are not null
/// (checked in `adopt`); nobody else has it.
pub struct Info {
    raw: NonNull<raw::Info>,
    ofi: &'static Ofi,
}

// SAFETY: plain memory that nothing else points to; the library keeps no reference to it.
unsafe impl Send for Info {}
// SAFETY: shared references only read.
unsafe impl Sync for Info {}

impl Ofi {
    /// All reliable-datagram endpoints that `provider` (all providers, when empty) offers, best first as the library
    /// sorts them, each with the most of what is [`Wanted`].
    ///
    /// # Errors
    /// What `fi_getinfo` says, other than that there is nothing.
    pub fn offers(&'static self, provider: &str) -> Result<Vec<Info>, OfiError> {
        let mut offers: Vec<Info> = Vec::new();
        for wanted in Wanted::LADDER {
            for info in self.ask(provider, wanted)? {
                if !offers.iter().any(|known| known.is_same_way(&info)) {
                    offers.push(info);
                }
            }
        }
        Ok(offers)
    }

    fn ask(&'static self, provider: &str, wanted: Wanted) -> Result<Vec<Info>, OfiError> {
        // SAFETY: `fi_dupinfo` of nothing allocates an empty structure with all its parts.
        let hints = unsafe { (self.dupinfo)(null()) };
        let no_memory = OfiError::Call { call: "fi_allocinfo", error: Errno::NOMEM };
        let hints = self.adopt(hints).ok_or(no_memory)?;
        hints.set_hints(provider, wanted);
        let mut list = std::ptr::null_mut();
        // SAFETY: the hints are valid; `list` is written once, with a list that is ours.
        let returned =
            unsafe { (self.getinfo)(self.api(), null(), null(), 0, hints.raw.as_ptr(), &mut list) };
        match Errno::check(returned as isize) {
            Ok(_) => {}
            Err(Errno::NODATA | Errno::NOSYS) => return Ok(Vec::new()),
            Err(error) => return Err(OfiError::Call { call: "fi_getinfo", error }),
        }
        let mut infos = Vec::new();
        let mut at = list;
        while !at.is_null() {
            // SAFETY: an element of the list; `fi_dupinfo` copies it alone, and copies are independent.
            let copy = unsafe { (self.dupinfo)(at) };
            infos.extend(self.adopt(copy));
            // SAFETY: as above.
            at = unsafe { (*at).next };
        }
        // SAFETY: the list as it was given, freed once.
        unsafe { (self.freeinfo)(list) };
        Ok(infos)
    }

    /// Takes over a structure of our own; `None` when it is incomplete.
    fn adopt(&'static self, raw: *mut raw::Info) -> Option<Info> {
        let raw = NonNull::new(raw)?;
        let info = Info { raw, ofi: self };
        // SAFETY: allocated by `fi_dupinfo`.
        let r = unsafe { raw.as_ref() };
        let whole = !(r.tx_attr.is_null()
            || r.rx_attr.is_null()
            || r.ep_attr.is_null()
            || r.domain_attr.is_null()
            || r.fabric_attr.is_null());
        whole.then_some(info)
    }
}

impl Info {
    pub(super) fn ofi(&self) -> &'static Ofi {
        self.ofi
    }

    pub(super) fn raw(&self) -> *mut raw::Info {
        self.raw.as_ptr()
    }

    fn info(&self) -> &raw::Info {
        // SAFETY: by the invariant.
        unsafe { self.raw.as_ref() }
    }

    fn tx(&self) -> &raw::TxAttr {
        // SAFETY: by the invariant.
        unsafe { &*self.info().tx_attr }
    }

    fn rx(&self) -> &raw::RxAttr {
        // SAFETY: by the invariant.
        unsafe { &*self.info().rx_attr }
    }

    fn ep(&self) -> &raw::EpAttr {
        // SAFETY: by the invariant.
        unsafe { &*self.info().ep_attr }
    }

    pub(super) fn domain_attr(&self) -> &raw::DomainAttr {
        // SAFETY: by the invariant.
        unsafe { &*self.info().domain_attr }
    }

    fn fabric_attr(&self) -> &raw::FabricAttr {
        // SAFETY: by the invariant.
        unsafe { &*self.info().fabric_attr }
    }

    fn set_hints(&self, provider: &str, wanted: Wanted) {
        let order = if wanted.ordered { raw::ORDER_SAS } else { 0 };
        // SAFETY: by the invariant all are ours alone; `prov_name` is null, and what is put there is freed with the
        // structure by `free`, which is `strdup`'s.
        unsafe {
            let info = &mut *self.raw.as_ptr();
            info.caps = raw::MSG;
            if wanted.rma {
                info.caps |= raw::RMA;
            }
            if wanted.multi_recv {
                info.caps |= raw::MULTI_RECV;
            }
            info.mode = raw::CONTEXT | raw::CONTEXT2;
            (*info.ep_attr).kind = raw::EP_RDM;
            (*info.tx_attr).msg_order = order;
            (*info.rx_attr).msg_order = order;
            let domain = &mut *info.domain_attr;
            domain.threading = raw::THREAD_DOMAIN;
            domain.resource_mgmt = raw::RM_ENABLED;
            // Everything but raw keys, which are longer than those we send to peers, device memory, which we have none of, and
            // FI_MR_MMU_NOTIFY: who asks for that must be told by `fi_mr_refresh` which pages are there before a peer reads them, since it
            // cannot look. We do not know when the user's pages come and go, so such a provider is not offered to us.
            domain.mr_mode = raw::MR_LOCAL
                | raw::MR_VIRT_ADDR
                | raw::MR_ALLOCATED
                | raw::MR_PROV_KEY
                | raw::MR_RMA_EVENT
                | raw::MR_ENDPOINT;
            if !provider.is_empty()
                && let Ok(name) = CString::new(provider)
            {
                (*info.fabric_attr).prov_name = libc::strdup(name.as_ptr());
            }
        }
    }

    fn is_same_way(&self, other: &Info) -> bool {
        (self.provider(), self.fabric(), self.domain(), self.source(), self.protocol())
            == (other.provider(), other.fabric(), other.domain(), other.source(), other.protocol())
    }

    /// The provider's name: `tcp;ofi_rxm`, `cxi`.
    #[must_use]
    pub fn provider(&self) -> String {
        text(self.fabric_attr().prov_name)
    }

    /// The provider's own version, major and minor.
    #[must_use]
    pub fn provider_version(&self) -> (u32, u32) {
        let version = self.fabric_attr().prov_version;
        (version >> 16, version & 0xffff)
    }

    /// The fabric's name: a network, a device's port.
    #[must_use]
    pub fn fabric(&self) -> String {
        text(self.fabric_attr().name)
    }

    /// The domain's name: an interface, a device.
    #[must_use]
    pub fn domain(&self) -> String {
        text(self.domain_attr().name)
    }

    /// Wire protocol and its version: both sides must have the same.
    #[must_use]
    pub fn protocol(&self) -> (u32, u32) {
        (self.ep().protocol, self.ep().protocol_version)
    }

    /// The number of the format of addresses.
    #[must_use]
    pub fn addr_format(&self) -> u32 {
        self.info().addr_format
    }

    /// The IP version of addresses that are socket addresses.
    #[must_use]
    pub fn ip_version(&self) -> Option<u8> {
        match self.addr_format() {
            raw::FORMAT_SOCKADDR_IN => Some(4),
            raw::FORMAT_SOCKADDR_IN6 => Some(6),
            _ => None,
        }
    }

    /// Whether addresses are terminated strings.
    #[must_use]
    pub fn addresses_are_text(&self) -> bool {
        self.addr_format() == raw::FORMAT_STR
    }

    /// The address that the endpoint would have; may be empty or without a port.
    #[must_use]
    pub fn source(&self) -> Vec<u8> {
        let info = self.info();
        if info.src_addr.is_null() || info.src_addrlen > 4096 {
            return Vec::new();
        }
        // SAFETY: the library says that there are that many bytes.
        unsafe { std::slice::from_raw_parts(info.src_addr.cast::<u8>(), info.src_addrlen).to_vec() }
    }

    /// Gives the endpoint a name of its own, where addresses are strings.
    pub fn set_source_text(&mut self, name: &str) {
        let Ok(name) = CString::new(name) else { return };
        // SAFETY: by the invariant ours alone; the old address is `malloc`'s and freed once, the new one `strdup`'s.
        unsafe {
            let info = self.raw.as_mut();
            libc::free(info.src_addr);
            info.src_addr = libc::strdup(name.as_ptr()).cast();
            info.src_addrlen = name.as_bytes_with_nul().len();
        }
    }

    /// Gives the endpoint an address, in the provider's format: what [`Port::name`](super::Port::name) said of an earlier one.
    pub fn set_source(&mut self, address: &[u8]) {
        // SAFETY: by the invariant ours alone; the old address is `malloc`'s and freed once, the new one has as many bytes as
        // are written.
        unsafe {
            let room = libc::malloc(address.len().max(1));
            if room.is_null() {
                return;
            }
            std::ptr::copy_nonoverlapping(address.as_ptr(), room.cast(), address.len());
            let info = self.raw.as_mut();
            libc::free(info.src_addr);
            (info.src_addr, info.src_addrlen) = (room, address.len());
        }
    }

    /// Leaves the port to the system, for endpoints beside the one that has the address ([`Info::set_source`]): otherwise there are none.
    pub(super) fn forget_port(&mut self) {
        if self.ip_version().is_none() {
            return;
        }
        // SAFETY: by the invariant ours alone; the port is in these two bytes of a socket's address of either family.
        unsafe {
            let info = self.raw.as_mut();
            if !info.src_addr.is_null() && info.src_addrlen >= 4 {
                info.src_addr.cast::<[u8; 2]>().add(1).write_unaligned([0; 2]);
            }
        }
    }

    /// Has the endpoint, and lanes beside it, take messages with tags, too: for providers that have them, which this does not ask.
    pub fn want_tags(&mut self) {
        // SAFETY: by the invariant ours alone.
        unsafe {
            let info = self.raw.as_mut();
            info.caps |= raw::TAGGED;
            (*info.tx_attr).caps |= raw::TAGGED;
            (*info.rx_attr).caps |= raw::TAGGED;
        }
    }

    /// Has the endpoint do atomic operations, and take others': for providers that have them, which this does not ask
    /// ([`Port::has_atomics`](super::Port::has_atomics) does).
    pub fn want_atomics(&mut self) {
        // SAFETY: by the invariant ours alone.
        unsafe {
            let info = self.raw.as_mut();
            info.caps |= raw::ATOMIC;
            (*info.tx_attr).caps |= raw::ATOMIC;
            (*info.rx_attr).caps |= raw::ATOMIC;
        }
    }

    pub(super) fn wants_atomics(&self) -> bool {
        self.info().caps & raw::ATOMIC != 0
    }

    pub(super) fn has_tags(&self) -> bool {
        self.info().caps & raw::TAGGED != 0
    }

    /// What the endpoint can do.
    #[must_use]
    pub fn has(&self) -> Wanted {
        let caps = self.info().caps;
        Wanted {
            rma: caps & raw::RMA != 0,
            multi_recv: caps & raw::MULTI_RECV != 0,
            ordered: self.tx().msg_order & self.rx().msg_order & raw::ORDER_SAS != 0,
        }
    }

    /// Longest message, in bytes.
    #[must_use]
    pub fn max_message(&self) -> usize {
        self.ep().max_msg_size
    }

    /// Longest message that is copied by the call that sends it, in bytes.
    #[must_use]
    pub fn inject_size(&self) -> usize {
        self.tx().inject_size
    }

    /// How many operations may be under way: sends and reads, receives.
    #[must_use]
    pub fn queue_sizes(&self) -> (usize, usize) {
        (self.tx().size, self.rx().size)
    }

    pub(super) fn mr_mode(&self, bit: std::ffi::c_int) -> bool {
        self.domain_attr().mr_mode & bit != 0
    }
}

impl Clone for Info {
    fn clone(&self) -> Self {
        // SAFETY: a valid structure.
        let raw = unsafe { (self.ofi.dupinfo)(self.raw.as_ptr()) };
        self.ofi.adopt(raw).expect("a copy is as complete as the original, or memory is out")
    }
}

impl Drop for Info {
    fn drop(&mut self) {
        // SAFETY: allocated by the library's `fi_dupinfo`, freed once.
        unsafe { (self.ofi.freeinfo)(self.raw.as_ptr()) };
    }
}

impl fmt::Debug for Info {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Info")
            .field("provider", &self.provider())
            .field("fabric", &self.fabric())
            .field("domain", &self.domain())
            .field("format", &self.addr_format())
            .field("has", &self.has())
            .field("inject", &self.inject_size())
            .field("max_message", &self.max_message())
            .field("queues", &self.queue_sizes())
            .field("mr_mode", &format_args!("{:#x}", self.domain_attr().mr_mode))
            .finish_non_exhaustive()
    }
}

fn text(name: *const c_char) -> String {
    if name.is_null() {
        return String::new();
    }
    // SAFETY: a terminated string of the structure, which lives.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}
