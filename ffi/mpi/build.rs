//! Gives the library its name, what the MPI 5.0 ABI calls it (standard, chapter 20) whatever the file is called, and makes
//! stubs of the functions that no source defines.

use ironweave_abi_list::{defined, parse, stubs};
use std::path::Path;

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libmpi_abi.so.1");
    // Threads of the library may still run when a program that had opened it closes it.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=abi/functions.h");
    println!("cargo:rerun-if-changed=src");
    if let Err(why) = write_stubs() {
        println!("cargo:error={why}");
    }
}

fn write_stubs() -> Result<(), String> {
    let list = std::fs::read_to_string("abi/functions.h")
        .map_err(|error| format!("abi/functions.h: {error}"))?;
    let functions = parse(&list)?;
    let text = stubs::render(&functions, &defined(Path::new("src"), &functions)?);
    let folder = std::env::var("OUT_DIR").map_err(|error| format!("OUT_DIR: {error}"))?;
    std::fs::write(Path::new(&folder).join("stubs.rs"), text).map_err(|error| error.to_string())
}
