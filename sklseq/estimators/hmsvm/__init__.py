"""``HMSVMTagger``, ``HMSVMTaggerCV`` and what only they use."""
