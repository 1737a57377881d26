//! How far each of libfabric's providers is trusted: plain data, asked by who selects and by who explains the selection.
//!
//! A provider is refused when it was seen to break a law that nothing above it can mend; each reason names what was
//! seen and where; `btl/ofi/tests/refused.rs` shows it.

/// Whether a provider is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// Wherever libfabric is.
    Default,
    /// Where it is asked for by name: something else serves the same wires better.
    Named,
    /// Not even then, unless refused ones are asked for too: why, in words for people.
    Refused(&'static str),
}

const RXD: &str = "what a dead or stopped peer did not take holds up all that goes to others; once packets were lost it \
                   delivers messages twice, or stops for good";
const SHM: &str = "a process that is killed inside it leaves a lock in shared memory on which all others spin for ever, \
                   and files in /dev/shm; use Ironweave's own shm";
const SM2: &str = "a process that is killed inside it may stop all others, and its gigabyte in /dev/shm outlives every \
                   job; use Ironweave's own shm";
const LAYER: &str =
    "it joins several devices into one and hides which of them failed; Ironweave makes each a rail";

/// What is known of the provider that libfabric calls `name` (`tcp;ofi_rxm`). Unknown ones are trusted.
///
/// ```
/// use ironweave_ffi::ofi::{Standing, standing};
/// assert_eq!(standing("cxi"), Standing::Default);
/// assert!(matches!(standing("udp;ofi_rxd"), Standing::Refused(_)));
/// ```
#[must_use]
pub fn standing(name: &str) -> Standing {
    let mut layers = name.split(';');
    let core = layers.next().unwrap_or(name);
    if layers.any(|layer| layer == "ofi_rxd") {
        return Standing::Refused(RXD);
    }
    match core {
        "shm" => Standing::Refused(SHM),
        "sm2" => Standing::Refused(SM2),
        "lnx" | "ofi_mrail" => Standing::Refused(LAYER),
        "net" | "udp" | "sockets" => Standing::Named,
        _ => Standing::Default,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_count_and_strangers_are_trusted() {
        assert_eq!(standing("tcp;ofi_rxm"), Standing::Default);
        assert_eq!(standing("verbs;ofi_rxd"), Standing::Refused(RXD));
        assert_eq!(standing("net"), Standing::Named);
        assert_eq!(standing("sockets"), Standing::Named);
        assert_eq!(standing("a-new-one"), Standing::Default);
        for name in ["shm", "sm2", "udp;ofi_rxd", "ofi_mrail"] {
            let Standing::Refused(why) = standing(name) else { panic!("{name} is trusted") };
            assert!(why.len() > 20, "{name}: a reason in words");
        }
    }
}
