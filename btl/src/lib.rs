//! The byte-transfer-layer contract, registered memory, and the self transport.
