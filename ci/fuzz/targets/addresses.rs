//! Published address lists: refused, or written back to the same bytes.
#![no_main]

use ironweave_btl::{decode_addresses, encode_addresses};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(addresses) = decode_addresses(bytes) {
        assert_eq!(encode_addresses(&addresses), bytes);
    }
});
