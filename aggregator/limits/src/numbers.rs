//! Numbers of classes and resources within one version. Numbers of different versions must not be
//! compared.

/// The number of a class of limits within one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(pub u32);

/// The number of a resource within one version: dense, in the order of names, over rates and copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceIx(pub u32);
