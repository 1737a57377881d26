//! A stranger: noise, and messages that look a little like ours.

use ironweave_btl::Address;
use ironweave_btl_conformance::Injected;
use ironweave_btl_ofi::endpoint_name;
use ironweave_ffi::ofi::{Closes, Errno, Ofi as Library, OfiError, Options, Port};
use std::time::{Duration, Instant};

/// Sends one message to `address`, from an endpoint of its own on a domain that is `near`.
pub fn speak(
    library: Result<&'static Library, OfiError>,
    provider: &str,
    near: impl Fn(&str) -> bool,
    address: &Address,
    round: u64,
) -> Injected {
    let Some(name) = endpoint_name(&address.bytes) else { return Injected::Unsupported };
    let port = library.and_then(|library| {
        let mut offers = library.offers(provider)?;
        offers.retain(|way| way.provider() == provider && near(&way.domain()));
        offers.sort_by_key(|way| way.ip_version().unwrap_or(u8::MAX));
        let way = offers.swap_remove(0);
        let options = Options {
            buffers: vec![(4, 4096)],
            receives: 2,
            receive_len: 8192,
            longest: 4096,
            multi_recv: true,
            peers: 1,
            waitable: false,
            closes: Closes::Busy,
            lane_receives: (0, 0),
            lane_longest: 0,
            early_completions: false,
        };
        Port::open(way, options)
    });
    let Ok(mut port) = port else { return Injected::Unsupported };
    let Ok(to) = port.insert(&name) else { return Injected::Unsupported };
    // One in each run says nothing at all.
    let len = if round.is_multiple_of(5) { 0 } else { (round * 37 % 4000) as usize };
    let mut noise: Vec<u8> = (0..len as u64).map(|i| (i * round / 7) as u8).collect();
    if !round.is_multiple_of(3) && noise.len() > 16 {
        noise[0] = 0xB0 + (round % 14) as u8;
        noise[1] = (round % 80) as u8;
        noise[8..11].fill(0);
    }
    let since = Instant::now();
    let mut slot = port.buffer(len);
    if let Some(slot) = &slot {
        port.bytes_mut(slot)[..len].copy_from_slice(&noise);
    }
    while let Some(full) = slot.take() {
        match port.send(full, len, to, 1) {
            Err((Errno::AGAIN, full)) if since.elapsed() < Duration::from_secs(5) => {
                slot = Some(full);
            }
            _ => {}
        }
        let _ = port.poll(|_| {}, |_| false);
    }
    // Some providers are done only when the receiver has looked, which it may do after this.
    while port.under_way() > 0 && since.elapsed() < Duration::from_millis(500) {
        let _ = port.poll(|_| {}, |_| false);
        std::thread::yield_now();
    }
    Injected::Done
}
