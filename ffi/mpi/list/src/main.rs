//! `iw-abi-list`: writes what is made from the list (`--write`), or checks that it is current (`--check`). See `ci/abi`.

use ironweave_abi_list::{defined, headers, parse, table};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let write = match std::env::args().nth(1).as_deref() {
        Some("--write") => true,
        Some("--check") => false,
        _ => {
            eprintln!("usage: iw-abi-list --write | --check");
            return ExitCode::from(2);
        }
    };
    match run(write) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("iw-abi-list: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Whether everything is current now.
fn run(write: bool) -> Result<bool, String> {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |name: &str| {
        std::fs::read_to_string(crate_folder.join(name)).map_err(|error| format!("{name}: {error}"))
    };
    let functions = parse(&read("abi/functions.h")?)?;
    let (types, extensions) = (read("abi/types.h")?, read("abi/extensions.h")?);
    let parts = headers::Parts {
        types: &types,
        extensions: &extensions,
        version: env!("CARGO_PKG_VERSION"),
    };
    let names = defined(&crate_folder.join("src"), &functions)?;
    let made = [
        ("include/mpi.h", headers::mpi(parts, &functions)),
        ("include/mpi-ext.h", headers::extensions(parts, &functions)),
        ("../../docs/conformance.md", table::conformance(&functions, &names)),
    ];
    let mut current = true;
    for (name, text) in made {
        if read(name).is_ok_and(|old| old == text) {
            continue;
        }
        match write {
            true => std::fs::write(crate_folder.join(name), text)
                .map_err(|error| format!("{name}: {error}"))?,
            false => {
                eprintln!("ffi/mpi/{name} is not current: run ci/abi");
                current = false;
            }
        }
    }
    Ok(current)
}
