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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_switch_that_is_not_named_stays_as_it_is() {
    let world = World::new().await;
    let switches = || {
        let switches = &world.served.json("/v1/limits")["switches"];
        ["ignore_configured", "allow_unconfigured"].map(|switch| switches[0][switch].as_bool())
    };
    world.done("namespaces switch api --allow-unconfigured true");
    assert_eq!(switches(), [None, Some(true)]);
    world.done("namespaces kill api");
    world.done("namespaces switch api --allow-unconfigured false");
    assert_eq!(switches(), [Some(true), Some(false)], "still killed");
    world.done("namespaces switch api --ignore-configured false");
    assert_eq!(switches(), [Some(false), Some(false)]);
    let before = world.version() - 1;
    let expecting =
        format!("namespaces switch api --ignore-configured true --expect-version {before}");
    world.refuses(&expecting, 75, "is in force");
    world.done("namespaces restore api");
    assert_eq!(switches(), [None, None]);
}
