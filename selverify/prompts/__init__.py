"""Few-shot prompts as data, one JSON file a codec; ``selverify.prompting`` reads them."""
