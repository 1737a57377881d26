//! Frame headers of the point-to-point layer: read without a panic, and the same every time.
#![no_main]

use ironweave_pml::ob1::wire::decode;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let (header, payload) = bytes.split_at(bytes.len().min(64));
    let once = format!("{:?}", decode(header, payload.len()));
    assert_eq!(once, format!("{:?}", decode(header, payload.len())));
});
