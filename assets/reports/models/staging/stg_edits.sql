-- Without the texts: the warehouse stays small, and rows with one text are found by its digest.
select
    id,
    dataset,
    language,
    split,
    license,
    origin_group,
    instruction_source,
    cluster,
    pre_tokens,
    post_tokens,
    md5(instruction) as instruction_md5,
    md5(pre) as pre_md5
from {{ source('lineage', 'edits') }}
