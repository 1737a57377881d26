//! A TCP peer's bytes after the handshake: whatever they are, the decoder ends, stays inside them, and says the same
//! whether they come at once or in two pieces.
#![no_main]

use ironweave_btl_tcp::wire::{Decoder, Malformed, Step};
use libfuzzer_sys::fuzz_target;

/// What the decoder says of the whole frames in `bytes`: header and payload of each, and how it ended.
fn whole_frames(bytes: &[u8]) -> (Vec<(&[u8], &[u8])>, Result<(), Malformed>) {
    let mut decoder = Decoder::new(bytes);
    let mut frames = Vec::new();
    loop {
        let before = decoder.rest().len();
        match decoder.step() {
            Ok(Step::Frame { header, payload }) => {
                assert!(decoder.rest().len() < before, "a frame takes bytes");
                assert!(header.len() <= ironweave_btl::HEADER_MAX);
                frames.push((header, payload));
            }
            Ok(Step::Started { payload_len, staged, .. }) => {
                assert!(staged.len() < payload_len, "a whole payload is a whole frame");
                return (frames, Ok(()));
            }
            Ok(Step::Bye | Step::Short) => return (frames, Ok(())),
            Err(malformed) => return (frames, Err(malformed)),
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let (frames, end) = whole_frames(bytes);
    // Cutting the stream short never shows other frames than the whole stream does.
    if let Some(cut) = bytes.first().map(|&byte| usize::from(byte) % bytes.len()) {
        let (fewer, early) = whole_frames(&bytes[..cut]);
        assert_eq!(fewer, frames[..fewer.len()]);
        assert!(early.is_ok() || end.is_err(), "bytes that come later cannot mend a stream");
    }
});
