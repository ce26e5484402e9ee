//! Rules by which Envoy's descriptors are uses of resources, for a gateway that Envoy calls.
//!
//! They are in the limits document, so that gateways learn them as agents learn limits, and no machine needs a
//! configuration of its own. They limit nothing: a rule turns a descriptor into a hit like any other.

use std::collections::BTreeMap;

use tollgate_shared::descriptors::DescriptorRule;

/// The rules of each domain of descriptors, by its name.
pub type Descriptors = BTreeMap<Box<str>, Box<[DescriptorRule]>>;

#[cfg(test)]
mod tests {
    use tollgate_shared::wire::public::Kind;

    use crate::Limits;

    const DOCUMENT: &str = r#"
        [namespace.closed]
        allow_unconfigured = false
        [descriptors.edge]
        rules = [
          { keys = ["method=POST", "path=/api/*"], resource = "edge.{method}", domain = "{path}" },
          { keys = ["tokens"], resource = "llm.tokens", domain = "{tokens}", record = true },
        ]
        [descriptors.closed]
        rules = []
    "#;

    #[test]
    fn gateways_learn_the_rules_of_a_domain() {
        let limits = Limits::parse(DOCUMENT).expect("it is right");
        let edge = limits.public("~descriptors.edge", 7);
        assert_eq!((edge.version, edge.kind), (7, Kind::Descriptors));
        assert_eq!(edge.descriptors.len(), 2);
        assert!(!edge.refused && edge.descriptors[1].records());
        assert!(limits.public("~descriptors.closed", 7).refused);
        let unknown = limits.public("~descriptors.other", 7);
        assert_eq!(unknown.kind, Kind::Unconfigured);
    }

    #[test]
    fn a_namespace_that_refuses_does_so_without_rules() {
        let of = |text: &str, domain: &str| {
            let limits = Limits::parse(text).expect("it is right");
            let public = limits.public(&format!("~descriptors.{domain}"), 7);
            (public.kind, public.refused, public.version)
        };
        let refused = (Kind::Descriptors, true, 7);
        let one = "[namespace.ns2]\nallow_unconfigured = false\n";
        assert_eq!(of(one, "ns2"), refused);
        assert_eq!(of(one, "other"), (Kind::Unconfigured, false, 7));
        let all = "[namespace.\"*\"]\nallow_unconfigured = false\n";
        let all = &format!("{all}[namespace.open]\nallow_unconfigured = true\n");
        assert_eq!(of(all, "edge"), refused);
        assert_eq!(of(all, "open").0, Kind::Unconfigured, "no rules to apply");
    }

    #[test]
    fn rules_are_printed_as_they_are_read() {
        let limits = Limits::parse(DOCUMENT).expect("it is right");
        let printed = limits.normalised_text();
        assert_eq!(Limits::parse(&printed), Ok(limits), "{printed}");
        let line = r#"  { keys = ["tokens"], resource = "llm.tokens", domain = "{tokens}", record = true },"#;
        assert!(printed.lines().any(|of| of == line), "{printed}");
    }
}
