//! A process that has an address and not the job's secret: it connects by UCX itself, and says what it likes.

use ironweave_btl::Address;
use ironweave_ffi_uct::{Event, Name, Port, Resource, Status, Uct};
use std::time::{Duration, Instant};

/// Of the first word of a message: what it is (`wire.rs`).
const KIND: u32 = 52;
/// A greeting without contact, address and seal, in bytes.
const GREETING: usize = 52;

/// Where greetings go, out of an address blob: version, incarnation, frame, transport, contact (`contact.rs`).
fn letters(address: &Address) -> Option<(usize, Name)> {
    let rest = address.bytes.get(9..)?;
    let (frame, rest) = rest.split_first_chunk()?;
    let mut rest = rest;
    let mut part = || {
        let (&len, after) = rest.split_first()?;
        let (part, after) = after.split_at_checked(len.into())?;
        rest = after;
        Some(part.to_vec())
    };
    part()?;
    let main = Name { device: part()?, iface: part()? };
    let letters = Name { device: part()?, iface: part()? };
    let name = if letters == Name::default() { main } else { letters };
    Some((u32::from_le_bytes(*frame) as usize, name))
}

/// Noise, frames of lives that are none, and greetings that nobody sealed.
fn message(round: u64) -> Vec<u8> {
    let noise = |len: u64| (0..len).map(|at| ((at * (round | 1)) >> 2) as u8).collect::<Vec<_>>();
    let kind = round / 3 % 9 + 1;
    match round % 3 {
        0 => noise(round % 300),
        1 => {
            // Of any kind, to a token that was not given.
            let token = round << 20 | 1;
            let mut message =
                (token | kind << KIND | (round % 65) << (KIND + 4)).to_le_bytes().to_vec();
            message.extend(noise(round % 200));
            message
        }
        _ => {
            let mut message = (1_u64 << KIND << 1).to_le_bytes().to_vec();
            message.extend(noise(GREETING as u64 + 40 + 32));
            // From process 1 to process 0, of the right version.
            message[8..20].copy_from_slice(&[2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
            message
        }
    }
}

/// Says something to the process at `address`, over the transport and device that its greetings come by.
pub fn speak(
    library: &'static Uct,
    transport: &str,
    device: Option<&str>,
    address: &Address,
    round: u64,
) -> Result<(), String> {
    let words = |error: &dyn std::fmt::Display| error.to_string();
    let (frame, there) = letters(address).ok_or("the address is not as this stranger knows it")?;
    let fits = |one: &Resource| {
        one.transport == transport && device.is_none_or(|device| one.device == device)
    };
    let resources = library.resources().map_err(|error| words(&error))?;
    let way = resources.into_iter().find(fits).ok_or("no such device")?;
    let mut port = Port::open(library).map_err(|error| words(&error))?;
    // As the job has them: who writes to shared memory takes the reader's queue to be as its own.
    let text = |value: usize| value.to_string();
    let settings = match transport {
        "posix" | "sysv" => vec![
            ("SEG_SIZE", text(72 + frame)),
            ("FIFO_SIZE", text(64)),
            ("FIFO_ELEM_SIZE", text(128)),
        ],
        "tcp" => vec![("TX_SEG_SIZE", text(8192)), ("RX_SEG_SIZE", text(64 << 10))],
        _ => vec![("ETH_DGID_CHECK", String::from("n"))],
    };
    let iface = port.add(&way, &settings).map_err(|error| words(&error))?;
    let ep = port.connect(iface, &there, 1).map_err(|error| words(&error))?;
    let message = message(round);
    let until = Instant::now() + Duration::from_secs(10);
    let mut sent = false;
    while !(sent && port.is_flushed(ep)) {
        if !sent {
            match port.send_packed(ep, message.len(), |bytes| bytes.copy_from_slice(&message)) {
                Ok(()) => sent = true,
                Err((Status::NO_RESOURCE, _)) => {}
                Err((status, _)) => return Err(format!("sending: {status}")),
            }
        }
        port.tend();
        let mut broke = None;
        port.poll(|event| {
            if let Event::Broke { status, .. } = event {
                broke = Some(status);
            }
        });
        match broke {
            Some(status) => return Err(format!("the endpoint broke: {status}")),
            None if Instant::now() > until => return Err("nobody takes it".to_owned()),
            None => std::thread::yield_now(),
        }
    }
    Ok(())
}
