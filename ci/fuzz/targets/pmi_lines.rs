//! What a process says to the launcher (PMI-1): lines of any bytes, cut anywhere.
#![no_main]

use ironweave_rte::pmi::wire::{Lines, parse};
use libfuzzer_sys::fuzz_target;

/// The lines of a stream that arrives in pieces of `step` bytes.
fn lines(bytes: &[u8], step: usize) -> Result<Vec<Vec<u8>>, ()> {
    let mut cutter = Lines::default();
    let mut lines = Vec::new();
    for piece in bytes.chunks(step) {
        cutter.push(piece);
        while let Some(line) = cutter.next_line().map_err(drop)? {
            assert!(!line.contains(&b'\n'));
            lines.push(line.to_vec());
        }
    }
    Ok(lines)
}

fuzz_target!(|bytes: &[u8]| {
    if let (Ok(bytewise), Ok(at_once)) = (lines(bytes, 1), lines(bytes, 4096)) {
        assert_eq!(bytewise, at_once, "how the bytes arrive does not matter");
        for line in bytewise {
            if let Ok(command) = parse(&line) {
                let text = std::str::from_utf8(&line).expect("a parsed line is UTF-8");
                assert!(text.contains(command.name()));
                let _ = command.get("rank");
                let _: Option<u32> = command.number("rank");
            }
        }
    }
});
