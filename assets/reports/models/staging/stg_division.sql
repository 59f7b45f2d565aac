select dataset, language, id, split, reason, kept_id, cluster from {{ source('lineage', 'division') }}
