//! `ironweave info`: which components there are, who tells how the cores lie, every parameter with
//! its value and where the value came from. Text for people, JSON for programs. Only reads.

use crate::fabrics::fabrics;
use crate::launch::placement;
use crate::params::table::{BTLS, PMLS};
use crate::params::{Params, Setting, Source};
use crate::rdma;
use ironweave_ffi_uct::{Uct, survey};
use std::fmt::Write;

/// Everything, as text.
pub fn text(params: &Params) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(out, "ironweave {}\n\nComponents", env!("CARGO_PKG_VERSION"));
    let _ = writeln!(out, "  pml       {}", PMLS.join(", "));
    let _ = writeln!(out, "  btl       {}", BTLS.join(", "));
    let _ =
        writeln!(out, "  launchers ironweave run; PMI-1: mpiexec (Hydra, Intel), srun --mpi=pmi2");
    match fabrics() {
        Ok(fabrics) => {
            let _ = writeln!(out, "  ofi       {fabrics}");
            for provider in &fabrics.providers {
                let _ = writeln!(out, "            {provider}: {}", fabrics.verdict(provider));
            }
        }
        Err(why) => drop(writeln!(out, "  ofi       not usable: {why}")),
    }
    match Uct::open().and_then(|uct| Ok((uct, survey(uct)?))) {
        Ok((uct, transports)) => {
            let path = uct.path().unwrap_or_else(|| uct.name().into());
            let _ = writeln!(out, "  uct       {}", path.display());
            for transport in transports {
                let (name, devices) = (&transport.name, transport.devices.join(", "));
                let _ = writeln!(out, "            {name} on {devices}: {}", transport.verdict());
            }
        }
        Err(why) => drop(writeln!(out, "  uct       not usable: {why}")),
    }
    let ports = rdma::ports(params);
    if ports.is_empty() {
        let _ = writeln!(out, "  verbs     no RDMA device");
    }
    for port in ports {
        let _ = writeln!(out, "  verbs     {port}");
    }
    let placement::Cores { sets, order } = placement::cores();
    let _ = writeln!(out, "  placement {} cores, order from {order}", sets.len());
    let _ = writeln!(out, "\nParameters (later wins: default, file, environment, --mca)");
    let width = params.settings().iter().map(|s| s.def.name.len()).max().unwrap_or(0);
    for setting in params.settings() {
        let value = shown(setting);
        let _ = write!(out, "  {:width$}  {value}", setting.def.name);
        match setting.source {
            Source::Default => out.push('\n'),
            ref source => drop(writeln!(out, "  ({source})")),
        }
    }
    let _ = writeln!(out, "\nironweave info --param NAME tells what one is for.");
    out
}

/// One parameter in full, as text.
pub fn param_text(setting: &Setting) -> String {
    let def = setting.def;
    format!(
        "{}\n  {}\n  takes    {}\n  default  {}\n  value    {}  ({})\n  set by   \
         IRONWEAVE_{}=…, --mca {} …, or {} = … in ironweave.toml\n",
        def.name,
        def.help,
        def.kind.describe(),
        if def.default.is_empty() { "(empty)" } else { def.default },
        shown(setting),
        setting.source,
        def.name.to_ascii_uppercase(),
        def.name,
        def.name
    )
}

/// The given settings with the components and the source of the placement, as JSON.
pub fn json<'a>(params: &Params, settings: impl Iterator<Item = &'a Setting>) -> serde_json::Value {
    let ports = rdma::ports(params);
    let rdma: Vec<_> = ports
        .iter()
        .map(|port| {
            serde_json::json!({
                "port": port.name, "link": port.link, "rate": port.rate, "unused": port.unused,
            })
        })
        .collect();
    let params: Vec<_> = settings
        .map(|setting| {
            serde_json::json!({
                "name": setting.def.name,
                "value": setting.text,
                "default": setting.def.default,
                "takes": setting.def.kind.describe(),
                "source": setting.source.to_string(),
                "help": setting.def.help,
            })
        })
        .collect();
    let placement::Cores { sets, order } = placement::cores();
    let ofi = match fabrics() {
        Ok(fabrics) => serde_json::json!({
            "version": format!("{}.{}", fabrics.version.0, fabrics.version.1),
            "library": fabrics.path,
            "providers": fabrics
                .providers
                .iter()
                .map(|provider| serde_json::json!({
                    "name": provider.name,
                    "version": format!("{}.{}", provider.version.0, provider.version.1),
                    "verdict": fabrics.verdict(provider),
                    "domains": provider.domains,
                }))
                .collect::<Vec<_>>(),
        }),
        Err(why) => serde_json::json!({ "unusable": why.to_string() }),
    };
    let uct = match Uct::open().and_then(|uct| Ok((uct, survey(uct)?))) {
        Ok((uct, transports)) => serde_json::json!({
            "library": uct.path(),
            "transports": transports
                .iter()
                .map(|transport| serde_json::json!({
                    "name": transport.name,
                    "devices": transport.devices,
                    "verdict": transport.verdict(),
                }))
                .collect::<Vec<_>>(),
        }),
        Err(why) => serde_json::json!({ "unusable": why.to_string() }),
    };
    serde_json::json!({
        "version": env!("CARGO_PKG_VERSION"),
        "components": { "pml": PMLS, "btl": BTLS },
        "ofi": ofi,
        "uct": uct,
        "rdma": rdma,
        "placement": { "cores": sets.len(), "order_from": order.to_string() },
        "params": params,
    })
}

fn shown(setting: &Setting) -> &str {
    if setting.text.is_empty() { "(empty)" } else { &setting.text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_is_listed_and_a_set_one_names_its_source() {
        let mut params = Params::default();
        params.set("btl", "^tcp", Source::CommandLine).unwrap();
        let text = text(&params);
        for setting in params.settings() {
            assert!(text.contains(setting.def.name), "{}", setting.def.name);
        }
        assert!(text.contains("^tcp  (command line)"), "{text}");
        assert!(text.contains(" cores, order from "), "{text}");
        let one = param_text(params.setting("btl").unwrap());
        assert!(one.contains("IRONWEAVE_BTL=") && one.contains("self,shm,verbs,tcp"), "{one}");
        let json = json(&params, params.settings().iter());
        assert_eq!(json["params"][0]["source"], "command line");
        assert!(json["placement"]["cores"].as_u64().is_some_and(|cores| cores > 0), "{json}");
    }
}
