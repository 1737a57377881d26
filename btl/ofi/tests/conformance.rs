//! The contract's suite, once for each library and provider: real processes over loopback, killed for real.
//!
//! What is not installed is skipped by name. Providers that are refused because they break are in `refused.rs`.

mod support;

use support::{DEBIAN, V1_22, V2_5};

providers! {
    tcp_rxm_1_17: DEBIAN, "tcp;ofi_rxm";
    net_1_17: DEBIAN, "net";
    tcp_1_22: V1_22, "tcp";
    tcp_rxm_1_22: V1_22, "tcp;ofi_rxm";
    tcp_2_5: V2_5, "tcp";
}
