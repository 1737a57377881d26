//! Gives the library its name: what the MPI 5.0 ABI calls it (standard, chapter 20), whatever the file is called.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libmpi_abi.so.1");
    // Threads of the library may still run when a program that had opened it closes it.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
