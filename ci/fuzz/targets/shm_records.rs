//! A shared-memory ring that a broken writer filled: a record is refused, or lies inside the ring and encodes to the
//! same word.
#![no_main]

use ironweave_btl_shm::record;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let bulk_max = 1 << 18;
    if let Ok(Some(record::Decoded { word, header, inline })) = record::decode(bytes, bulk_max) {
        assert_eq!(word.encode().to_le_bytes(), bytes[..8]);
        assert!(word.footprint() <= bytes.len());
        assert!(8 + header.len() + inline.len() <= word.footprint());
        assert_eq!(header.len(), usize::from(word.header));
    }
});
