//! Switches of namespaces that are not what was meant: a mistyped name, and a restore of nothing.

use super::*;

/// In a world without switches: a restore is refused; a kill of an unknown namespace is done, and named.
pub fn a_mistyped_namespace_is_noticed(world: &World) {
    let before = world.version();
    for namespace in ["api", "apj"] {
        let restore = format!("namespaces restore {namespace}");
        world.refuses(&restore, 1, "no switch of this namespace is set");
    }
    assert_eq!(world.version(), before);
    let unknown = "no resource of the limits in force is in the namespace apj, did you mean api?";
    for act in ["kill apj", "switch apj --ignore-configured true"] {
        world.refuses(&format!("namespaces {act}"), 0, unknown);
    }
    world.done("namespaces restore apj");
}
