q
f/tmp/golden-cxqacev0/remote/kv/golden/keyed_arrow_zstd-6/0/snap-0/bcdcc732-2d23-496f-937d-04bd1d909b43CURRENTy
f/tmp/golden-cxqacev0/remote/kv/golden/keyed_arrow_zstd-6/0/snap-0/041fa188-5f29-4e6c-ac34-008bcc0cc493MANIFEST-000004x
f/tmp/golden-cxqacev0/remote/kv/golden/keyed_arrow_zstd-6/0/snap-0/6f11b7bf-2247-4800-8d25-cc14b070d3fcOPTIONS-000007t
f/tmp/golden-cxqacev0/remote/kv/golden/keyed_arrow_zstd-6/0/shared/e12eed38-00b7-452b-8d50-51c370ce7073
000008.sst