//! Link options of the shared library: the name by which programs load it, and that it is never unloaded.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        // The number is increased with each change of tollgate.h that breaks existing programs.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libtollgate_c.so.0");
        // An agent's threads run the library's code. A host that unloads it (LuaJIT does, with its last reference)
        // would unmap the code under them.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
