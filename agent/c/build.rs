//! How the shared library is linked: by which name programs look for it, and that it is never unloaded.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        // The number goes up with each change of tollgate.h that an old program would not survive.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libtollgate_c.so.0");
        // An agent's threads run its code: a host that closes it (LuaJIT does, with its last reference) would
        // pull that away from below them.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
