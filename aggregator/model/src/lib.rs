//! tollgate-model.
