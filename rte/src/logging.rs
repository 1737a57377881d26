//! Logs on standard error, as the environment variable `IRONWEAVE_LOG` asks: `debug`, or `ironweave_btl_verbs=debug,info`.

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// What to log; [`start`] reads it.
pub const VARIABLE: &str = "IRONWEAVE_LOG";

/// Logs what [`VARIABLE`] asks for, `usually` where it asks for nothing. A program that has its own subscriber of `tracing` keeps it.
/// A filter that cannot be read is reported, and counts as not given.
pub fn start(usually: Option<LevelFilter>) {
    let asked = std::env::var(VARIABLE).ok().and_then(|text| match text.parse::<Targets>() {
        Ok(filter) => Some(filter),
        Err(error) => {
            eprintln!(
                "ironweave: {VARIABLE}={text:?} is no filter ({error}): it counts as not given"
            );
            None
        }
    });
    let Some(filter) = asked.or_else(|| Some(Targets::new().with_default(usually?))) else {
        return;
    };
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    // An error: the program's own subscriber came first.
    let _ = tracing_subscriber::registry().with(layer).with(filter).try_init();
}
