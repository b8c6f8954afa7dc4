"""``HMSVMTagger``, ``HMSVMTaggerCV`` and their private helpers."""
