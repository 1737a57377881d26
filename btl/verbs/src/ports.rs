//! Which ports of which devices may be rails: what the owner includes and excludes, and what is active. Opens devices, and nothing
//! on them.

use crate::config::{OpenError, VerbsConfig};
use ironweave_ffi_verbs::{Device, devices};

/// The ports that could be rails, device and number, in the order that is asked for.
///
/// # Errors
/// When there is none, or one that is named is not there.
pub fn candidates(config: &VerbsConfig) -> Result<Vec<(Device, u8)>, OpenError> {
    let known = devices()?;
    let named = |list: &[String], device: &str, port: u8| {
        list.iter().any(|name| *name == device || *name == format!("{device}:{port}"))
    };
    let mut found = Vec::new();
    let mut seen = Vec::new();
    for name in &known {
        if !config.include.is_empty()
            && !config.include.iter().any(|wanted| wanted.split(':').next() == Some(name))
        {
            continue;
        }
        let device = Device::open(name)?;
        for number in 1..=2 {
            let Ok(port) = device.port(number) else { break };
            let wanted = config.include.is_empty() || named(&config.include, name, number);
            let usable = wanted && !named(&config.exclude, name, number);
            if usable && port.active && device.limits().shared > 0 {
                found.push((device.clone(), number));
            } else {
                let state = if port.active { "active" } else { "down" };
                seen.push(format!("{name}:{number} {state}"));
            }
        }
    }
    if let Some(missing) = config.include.iter().find(|wanted| {
        let device = wanted.split(':').next().unwrap_or_default();
        !known.iter().any(|name| name == device)
    }) {
        return Err(OpenError::NoPort {
            why: format!("{missing} is not one of {}", known.join(", ")),
        });
    }
    if found.is_empty() {
        let why = if known.is_empty() { String::from("no RDMA device") } else { seen.join(", ") };
        return Err(OpenError::NoPort { why });
    }
    if !config.include.is_empty() {
        let place = |device: &Device, port: u8| {
            config.include.iter().position(|name| {
                *name == device.name() || *name == format!("{}:{port}", device.name())
            })
        };
        found.sort_by_key(|(device, port)| place(device, *port));
    }
    Ok(found)
}
